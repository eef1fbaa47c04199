// Arguments on CUDA if the plugin has the same GPU: used in place. PyTorch owns their memory, so a new value is copied
// into it.
#include <ATen/ops/clone.h>

#include <utility>

#include "engine/compiled_call/bound_argument.h"
#include "engine/memory/cuda.h"
#include "engine/memory/outside_memory.h"

namespace tpjrt::engine {
namespace {

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

std::unique_ptr<BoundArgument> bound_on_cuda(uint32_t argument, graph::TypePtr form, int64_t result) {
  return std::make_unique<BoundOnCuda>(argument, form, result);
}

}  // namespace tpjrt::engine
