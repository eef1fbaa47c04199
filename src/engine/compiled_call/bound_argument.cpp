// Arguments of compiled functions, on every kind of device. On the CPU they are used in place if the device computes in
// host memory, otherwise copied. On the device they are the buffers that they have after their pending work has run. On
// CUDA they are used in place if the plugin has the same GPU; PyTorch owns their memory, so a new value is copied into
// it.
#include "engine/compiled_call/bound_argument.h"

#include <ATen/ops/clone.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "device/services/counters.h"
#include "device/services/modes.h"
#include "device/tensor/access.h"
#include "device/tensor/seal.h"
#include "device/tensor/storage.h"
#include "engine/kernel/kernel_call.h"
#include "engine/memory/cuda.h"
#include "engine/memory/device_data.h"
#include "engine/memory/host_memory.h"
#include "graph/errors.h"
#include "graph/signature.h"

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
  graph::Value value() const override { return {leaf_, 0}; }
  Replication replication() const override { return data_of(*leaf_).replication; }
  ChecksPtr checks() const override { return data_of(*leaf_).checks; }
  void update(CallState& /*call*/, std::shared_ptr<pjrt::Buffer>& /*output*/) override {
    throw graph::InternalError("a constant of a compiled graph has a new value");
  }
  void release(bool /*went_well*/) override {}

 private:
  graph::NodePtr leaf_;
};

// Copies: to each rank in a world.
class BoundOnCpu : public BoundArgument {
 public:
  BoundOnCpu(uint32_t argument, graph::TypePtr form, int64_t result, bool donated)
      : BoundArgument(argument, form, result), donated_(donated) {}

  const pjrt::Buffer& bind(CallState& call) override {
    call.count_copy(call.client.replicas() * type_->size_in_bytes);
    hold(call);
    buffer_ = call.client.buffer_from_host(address_in(call), type_, pjrt::HostBufferSemantics::kCopy, call.device, {});
    return *buffer_;
  }

  void update(CallState& call, std::shared_ptr<pjrt::Buffer>& output) override {
    const size_t nbytes = output->size_in_bytes();
    if (donated_) buffer_.reset();
    if (nbytes == 0) return;
    call.count_copy(nbytes);
    output->copy_to_host(tensor_of(call).mutable_data_ptr(), nbytes);
  }

  // This buffer belongs to somebody else's result or is a copy, so it must not be kept alive here.
  void release(bool /*went_well*/) override { buffer_.reset(); }

 protected:
  const void* address_in(const CallState& call) const {
    const at::Tensor& tensor = tensor_of(call);
    return result_ >= 0 ? tensor.mutable_data_ptr() : tensor.const_data_ptr();
  }

  std::shared_ptr<pjrt::Buffer> buffer_;

 private:
  bool donated_;
};

// Uses aligned memory in place.
class BoundInPlace final : public BoundOnCpu {
 public:
  using BoundOnCpu::BoundOnCpu;

  const pjrt::Buffer& bind(CallState& call) override {
    const void* memory = address_in(call);
    if (buffer_ && memory_ == memory) return *buffer_;
    const at::Tensor& tensor = tensor_of(call);
    memory_ = nullptr;
    if (!is_aligned(memory)) {
      move_out_of_mapped_file(tensor);
      memory = address_in(call);  // another call may have moved it
    }
    if (!is_aligned(memory)) {
      check_copy(memory, pjrt::Client::kZeroCopyAlignment);
      return BoundOnCpu::bind(call);
    }
    if (auto own = result_ < 0 ? own_buffer(tensor, *type_) : nullptr) {
      buffer_ = std::move(own);
      hold(call);
      return *buffer_;  // not kept: the tensor's owner decides its lifetime
    }
    memory_ = memory;
    buffer_ = call.client.buffer_from_host(memory, type_, pjrt::HostBufferSemantics::kZeroCopyMutable, call.device, {});
    buffer_->set_counted(false);  // the memory is the host's
    return *buffer_;
  }

  void update(CallState& call, std::shared_ptr<pjrt::Buffer>& output) override {
    void* memory = tensor_of(call).mutable_data_ptr();
    if (output->host_pointer() != memory) return BoundOnCpu::update(call, output);
    memory_ = memory;  // the buffer over it, for the next call
    buffer_ = output;
  }

  void release(bool went_well) override {
    if (!went_well) memory_ = nullptr;  // the buffer may have been donated to a program that failed
    if (!memory_) BoundOnCpu::release(went_well);
  }

 private:
  const void* memory_ = nullptr;  // of the last call's buffer, if the next call may use that
};

class BoundOnDevice final : public BoundArgument {
 public:
  BoundOnDevice(uint32_t argument, graph::TypePtr form, int64_t result, bool donated)
      : BoundArgument(argument, form, result), donated_(donated) {}
  ~BoundOnDevice() override { let_go(); }

  bool is_readied() const override { return true; }
  // Gives views a buffer of their own.
  void ready(CallState& call) override {
    hold(call);
    const at::Tensor& tensor = tensor_of(call);
    if (result_ >= 0) device::before_write(tensor, "a compiled function");
    std::lock_guard lock(graph::graph_lock());
    graph::Value value = device::read(tensor);
    if (value.type() != form_) value = device::convert(value, form_, tensor.device().index());
    if (value.is_leaf()) {
      leaf_ = std::move(value);
      return;
    }
    pending_.emplace();
    pending_->bind(std::move(value));
    call.pending.push_back(&*pending_);
  }
  graph::Value value() const override { return pending_ ? pending_->value() : leaf_; }

  const pjrt::Buffer& bind(CallState& call) override {
    if (pending_) {
      std::lock_guard lock(graph::graph_lock());
      leaf_ = pending_->value();
      pending_.reset();
    }
    const DeviceData& data = data_of(*leaf_.node);
    call.launch.add_lender(data.lender);
    call.any_checks |= data.checks != nullptr;
    // Donation is safe only if nobody but the storage and this call holds the buffer: then nobody can read it
    // afterwards.
    if (donated_ && (leaf_.node.use_count() > 2 || data.is_shared())) {
      call.launch.kept.push_back(static_cast<int64_t>(call.launch.arguments.size()));
    } else if (donated_) {
      call.launch.donated.push_back(data.buffer.get());
    }
    return *data.buffer;
  }

  Replication replication() const override { return data_of(*leaf_.node).replication; }
  ChecksPtr checks() const override { return data_of(*leaf_.node).checks; }

  void update(CallState& call, std::shared_ptr<pjrt::Buffer>& output) override {
    leaf_ = {};
    std::lock_guard lock(graph::graph_lock());
    device::write(tensor_of(call), {call.leaf_of_result(form_, output, static_cast<size_t>(result_)), 0});
  }

  void release(bool /*went_well*/) override { let_go(); }

 private:
  void let_go() {
    leaf_ = {};
    if (!pending_) return;
    graph::Value released;  // freed after the lock is released
    std::lock_guard lock(graph::graph_lock());
    released = pending_->value();
    pending_.reset();
  }

  bool donated_;
  // The value during a call. Another thread's write to the tensor no longer changes it.
  graph::Value leaf_;
  std::optional<graph::StorageSlot> pending_;  // set while the value has to be computed
};

class BoundOnCuda final : public BoundArgument {
 public:
  BoundOnCuda(uint32_t argument, graph::TypePtr form, int64_t result) : BoundArgument(argument, form, result) {}

  bool is_readied() const override { return true; }
  // Copies a tensor that XLA can't take in place. The copy is queued on the stream that the plugin waits for.
  void ready(CallState& call) override {
    const at::Tensor& tensor = tensor_of(call);
    call.queued = tensor.device();
    const void* memory = tensor.const_data_ptr();
    if (reinterpret_cast<uintptr_t>(memory) % cuda::kAlignment == 0) return;
    check_copy(memory, cuda::kAlignment);
    call.copied_bytes += static_cast<int64_t>(type_->size_in_bytes);
    staged_ = memory_of(tensor).clone();
  }

  const pjrt::Buffer& bind(CallState& call) override {
    const at::Tensor& tensor = tensor_of(call);
    call.launch.kept.push_back(static_cast<int64_t>(call.launch.arguments.size()));
    const void* memory = (staged_.defined() ? staged_ : tensor).const_data_ptr();
    if (!call.order && buffer_ && memory_ == memory) return *buffer_;
    memory_ = nullptr;
    if (auto own = call.order || staged_.defined() ? nullptr : own_buffer(tensor, *type_)) {
      buffer_ = std::move(own);
      hold(call);
      return *buffer_;  // not kept: the tensor's owner decides its lifetime
    }
    if (staged_.defined()) {
      hold(call);
    } else {
      memory_ = memory;
    }
    buffer_ = call.client.view_of_device_memory(memory, type_, call.device,
                                                std::exchange(call.order, std::nullopt).value_or(0));
    return *buffer_;
  }

  void update(CallState& call, std::shared_ptr<pjrt::Buffer>& output) override {
    const at::Tensor& tensor = tensor_of(call);
    memory_of(tensor).copy_(tensor_over(storage_over(std::move(output), *form_, tensor.device()), form_->dtype,
                                        form_->sizes, form_->strides, 0));
  }

  void release(bool went_well) override {
    staged_.reset();
    if (!went_well) memory_ = nullptr;
    if (!memory_) buffer_.reset();
  }

 private:
  at::Tensor staged_;  // a copy in a supported layout, during a call
  // Buffer of the last call, if the next call may use it.
  const void* memory_ = nullptr;
  std::shared_ptr<pjrt::Buffer> buffer_;
};

}  // namespace

std::unique_ptr<BoundArgument> bound_constant(graph::NodePtr leaf) {
  return std::make_unique<Constant>(std::move(leaf));
}

std::unique_ptr<BoundArgument> bound_argument(c10::Device device, uint32_t argument, graph::TypePtr form,
                                              int64_t result, bool donated, bool in_place) {
  if (device.is_cpu()) return bound_on_cpu(argument, form, result, donated, in_place);
  if (device.is_cuda()) return bound_on_cuda(argument, form, result);
  return bound_on_device(argument, form, result, donated);
}

std::unique_ptr<BoundArgument> bound_on_cpu(uint32_t argument, graph::TypePtr form, int64_t result, bool donated,
                                            bool in_place) {
  if (in_place) return std::make_unique<BoundInPlace>(argument, form, result, donated);
  return std::make_unique<BoundOnCpu>(argument, form, result, donated);
}

std::unique_ptr<BoundArgument> bound_on_device(uint32_t argument, graph::TypePtr form, int64_t result, bool donated) {
  return std::make_unique<BoundOnDevice>(argument, form, result, donated);
}

std::unique_ptr<BoundArgument> bound_on_cuda(uint32_t argument, graph::TypePtr form, int64_t result) {
  return std::make_unique<BoundOnCuda>(argument, form, result);
}

}  // namespace tpjrt::engine
