// Arguments on the CPU: used in place if the device computes in host memory, otherwise copied.
#include <cstring>
#include <utility>

#include "engine/compiled_call/bound_argument.h"
#include "engine/memory/host_memory.h"
#include "engine/memory/outside_memory.h"
#include "graph/world/world.h"

namespace tpjrt::engine {
namespace {

class BoundOnCpu final : public BoundArgument {
 public:
  BoundOnCpu(uint32_t argument, graph::TypePtr form, int64_t result, bool donated)
      : BoundArgument(argument, form, result), donated_(donated) {}

  const pjrt::Buffer& bind(CallState& call) override {
    const at::Tensor& tensor = tensor_of(call);
    const auto address = [&] { return result_ >= 0 ? tensor.mutable_data_ptr() : tensor.const_data_ptr(); };
    const void* memory = address();
    if (buffer_ && memory_ == memory) return *buffer_;
    pjrt::Client& client = call.client;
    memory_ = nullptr;
    if (graph::in_world()) {  // each rank gets a copy
      call.count_copy(graph::world_size() * type_->size_in_bytes);
      hold(call);
      buffer_ = client.replicated_from_host(memory, type_, graph::world_size());
      return *buffer_;
    }
    const bool in_place = call.waits && client.is_host_memory();
    if (in_place && !is_aligned(memory)) {
      move_out_of_mapped_file(tensor);
      memory = address();  // another call may have moved it
    }
    if (in_place && is_aligned(memory)) {
      if (auto own = result_ < 0 ? own_buffer(tensor, *type_) : nullptr) {
        buffer_ = std::move(own);
        hold(call);
        return *buffer_;  // not kept: the tensor's owner decides its lifetime
      }
      memory_ = memory;
      buffer_ = client.buffer_from_host(memory, type_, pjrt::HostBufferSemantics::kZeroCopyMutable, call.device, {});
      buffer_->set_counted(false);  // the memory is the host's
      return *buffer_;
    }
    if (in_place) check_copy(memory, pjrt::Client::kZeroCopyAlignment);
    call.count_copy(type_->size_in_bytes);
    hold(call);
    buffer_ = client.buffer_from_host(memory, type_, pjrt::HostBufferSemantics::kCopy, call.device, {});
    return *buffer_;
  }

  void update(CallState& call, std::shared_ptr<pjrt::Buffer>& output) override {
    void* memory = tensor_of(call).mutable_data_ptr();
    const size_t nbytes = output->size_in_bytes();
    const bool is_host_memory = call.client.is_host_memory();
    if (is_host_memory && output->host_pointer() == memory) {
      memory_ = memory;  // the buffer over it, for the next call
      buffer_ = output;
      return;
    }
    if (donated_) buffer_.reset();
    if (nbytes == 0) return;
    call.count_copy(nbytes);
    if (is_host_memory) {
      std::memcpy(memory, output->host_pointer(), nbytes);
    } else {
      output->copy_to_host(memory, nbytes);
    }
  }

  void release(bool went_well) override {
    if (!went_well) memory_ = nullptr;  // the buffer may have been donated to a program that failed
    // This buffer belongs to somebody else's result or is a copy, so it must not be kept alive here.
    if (!memory_) buffer_.reset();
  }

 private:
  bool donated_;
  // Buffer of the last call, if the next call may use it.
  const void* memory_ = nullptr;
  std::shared_ptr<pjrt::Buffer> buffer_;
};

}  // namespace

std::unique_ptr<BoundArgument> bound_on_cpu(uint32_t argument, graph::TypePtr form, int64_t result, bool donated) {
  return std::make_unique<BoundOnCpu>(argument, form, result, donated);
}

}  // namespace tpjrt::engine
