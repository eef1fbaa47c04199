// Arguments on the device itself: the buffers that they have after their pending work has run.
#include <mutex>
#include <optional>
#include <utility>

#include "device/tensor/access.h"
#include "device/tensor/seal.h"
#include "device/tensor/storage.h"
#include "engine/compiled_call/bound_argument.h"
#include "engine/memory/device_data.h"

namespace tpjrt::engine {
namespace {

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

}  // namespace

std::unique_ptr<BoundArgument> bound_on_device(uint32_t argument, graph::TypePtr form, int64_t result, bool donated) {
  return std::make_unique<BoundOnDevice>(argument, form, result, donated);
}

}  // namespace tpjrt::engine
