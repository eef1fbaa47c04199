// Code that bound arguments on every kind of device share.
#include "engine/compiled_call/bound_argument.h"

#include <c10/util/Exception.h>

#include <utility>

#include "device/services/counters.h"
#include "device/services/modes.h"
#include "engine/memory/device_data.h"
#include "engine/memory/host_memory.h"
#include "engine/memory/outside_memory.h"
#include "graph/errors.h"

namespace tpjrt::engine {

void CallState::count_copy(size_t bytes) {
  copied_bytes += static_cast<int64_t>(bytes);
  device::counters().host_transfer_bytes += bytes;
}

graph::NodePtr CallState::leaf_of_result(graph::TypePtr form, std::shared_ptr<pjrt::Buffer> buffer,
                                         size_t result) const {
  graph::NodePtr leaf = leaf_of(form, std::move(buffer));
  auto& data = static_cast<DeviceData&>(*leaf->data);
  if (replicated != nullptr) data.replication = (*replicated)[result];
  if (checks != nullptr) data.checks = (*checks)[result];
  return leaf;
}

BoundArgument::BoundArgument(uint32_t argument, graph::TypePtr form, int64_t result)
    : argument_(argument), form_(form), type_(buffer_type(*form)), result_(result) {}

at::Tensor BoundArgument::memory_of(const at::Tensor& tensor) const {
  return tensor_over(tensor.storage(), form_->dtype, form_->sizes, form_->strides, tensor.storage_offset());
}

void BoundArgument::check_copy(const void* memory, size_t alignment) const {
  TORCH_CHECK(type_->size_in_bytes < kNoticedBytes || !device::strict(), "argument ", argument_,
              " of a compiled graph, ", graph::to_string(*form_), ", would be copied in each call: it is at ", memory,
              ", and memory is used in place at multiples of ", alignment,
              " bytes. Give it memory from PyTorch: x = x.clone() (an error because strict mode is on: "
              "TORCH_PJRT_STRICT=1)");
}

namespace {

class Constant final : public BoundArgument {
 public:
  explicit Constant(graph::NodePtr leaf) : BoundArgument(0, leaf->leaf_type, -1), leaf_(std::move(leaf)) {}

  const pjrt::Buffer& bind(CallState& call) override {
    const DeviceData& data = data_of(*leaf_);
    call.launch.add_lender(data.lender);
    call.any_checks |= data.checks != nullptr;
    return *data.buffer;
  }
  Replication replication() const override { return data_of(*leaf_).replication; }
  ChecksPtr checks() const override { return data_of(*leaf_).checks; }
  void update(CallState& /*call*/, std::shared_ptr<pjrt::Buffer>& /*output*/) override {
    throw graph::InternalError("a constant of a compiled graph has a new value");
  }
  void release(bool /*went_well*/) override {}

 private:
  graph::NodePtr leaf_;
};

}  // namespace

std::unique_ptr<BoundArgument> bound_constant(graph::NodePtr leaf) {
  return std::make_unique<Constant>(std::move(leaf));
}

std::unique_ptr<BoundArgument> bound_argument(c10::Device device, uint32_t argument, graph::TypePtr form,
                                              int64_t result, bool donated) {
  if (device.is_cpu()) return bound_on_cpu(argument, form, result, donated);
  if (device.is_cuda()) return bound_on_cuda(argument, form, result);
  return bound_on_device(argument, form, result, donated);
}

}  // namespace tpjrt::engine
