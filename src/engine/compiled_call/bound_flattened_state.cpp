// Copies small state into flattened states and out of them.
#include "engine/compiled_call/bound_flattened_state.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "engine/memory/device_data.h"

namespace tpjrt::engine {

BoundFlattenedState::BoundFlattenedState(const graph::FlattenedState& state, uint32_t result) : result_(result) {
  const size_t width = elementSize(state.dtype);
  for (size_t i = 0; i < state.members.size(); ++i) {
    const int64_t end = i + 1 < state.members.size() ? state.members[i + 1].first : state.elements;
    const int64_t first = state.members[i].first;
    spans_.push_back({static_cast<size_t>(first) * width, static_cast<size_t>(end - first) * width});
  }
  type_ = std::make_shared<const pjrt::BufferType>(buffer_type(state.dtype), std::vector<int64_t>{state.elements});
  memory_ = c10::GetCPUAllocator()->allocate(type_->size_in_bytes);
}

void BoundFlattenedState::put(size_t member, const at::Tensor& tensor) {
  const auto [first, nbytes] = spans_[member];
  std::memcpy(static_cast<char*>(memory_.mutable_get()) + first, tensor.const_data_ptr(), nbytes);
}

const pjrt::Buffer* BoundFlattenedState::bind(pjrt::Client& client, size_t device_index) {
  if (!buffer_) {
    buffer_ =
        client.buffer_from_host(memory_.get(), type_, pjrt::HostBufferSemantics::kZeroCopyMutable, device_index, {});
    buffer_->set_counted(false);  // the memory is the host's
  }
  return buffer_.get();
}

void BoundFlattenedState::take(const std::vector<std::shared_ptr<pjrt::Buffer>>& outputs) {
  buffer_ = outputs[result_];
  const void* memory = buffer_->host_pointer();
  if (memory == memory_.get()) return;
  std::memcpy(memory_.mutable_get(), memory, type_->size_in_bytes);
  buffer_.reset();
}

void BoundFlattenedState::get(size_t member, const at::Tensor& tensor) const {
  const auto [first, nbytes] = spans_[member];
  std::memcpy(tensor.mutable_data_ptr(), static_cast<const char*>(memory_.get()) + first, nbytes);
}

}  // namespace tpjrt::engine
