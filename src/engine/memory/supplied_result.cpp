// The memory of a result during a call.
#include "engine/memory/supplied_result.h"

#include <c10/core/CPUAllocator.h>

#include <utility>

#include "engine/memory/device_data.h"
#include "engine/memory/host_memory.h"

namespace tpjrt::engine {

SuppliedResult::SuppliedResult(graph::TypePtr form) : form_(form), type_(buffer_type(*form)) {}

const pjrt::Buffer* SuppliedResult::bind(pjrt::Client& client, size_t device_index) {
  memory_ = c10::GetCPUAllocator()->allocate(form_->nbytes());
  buffer_ =
      client.buffer_from_host(memory_.get(), type_, pjrt::HostBufferSemantics::kZeroCopyMutable, device_index, {});
  buffer_->set_counted(false);  // the memory is the host's
  return buffer_.get();
}

c10::Storage SuppliedResult::take(std::shared_ptr<pjrt::Buffer> output) {
  at::DataPtr memory = std::exchange(memory_, {});
  let_go();
  // The plugin doesn't use unaligned memory.
  if (output->host_pointer() != memory.get()) return storage_over(std::move(output), *form_, c10::kCPU);
  return {c10::Storage::use_byte_size_t(), form_->nbytes(), std::move(memory), c10::GetCPUAllocator(), true};
}

void SuppliedResult::let_go() {
  buffer_.reset();
  memory_.clear();
}

}  // namespace tpjrt::engine
