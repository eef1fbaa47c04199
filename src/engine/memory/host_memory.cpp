// Memory of PyTorch's own devices (host_memory.h).
#include "engine/memory/host_memory.h"

#include <ATen/MapAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "engine/memory/cuda.h"
#include "engine/memory/device_data.h"
#include "pjrt/client.h"
#include "pjrt/large_memory.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace tpjrt::engine {

namespace {

std::atomic<c10::DeleterFnPtr> deleter_of_slices = nullptr;

bool is_slice_of_private_mapping(const c10::StorageImpl& storage) {
  const c10::DataPtr& memory = storage.data_ptr();
  if (!memory.get_deleter() || memory.get_deleter() != deleter_of_slices.load()) return false;
  const auto* whole = static_cast<const c10::StorageImpl*>(memory.get_context());
  const at::MapAllocator* mapping = at::MapAllocator::fromDataPtr(whole->data_ptr());
  return mapping && (mapping->flags() & (at::ALLOCATOR_MAPPED_SHARED | at::ALLOCATOR_MAPPED_SHAREDMEM)) == 0;
}

// Releases the buffer that a CPU storage over its memory keeps alive.
void release_buffer(void* buffer) { delete static_cast<std::shared_ptr<pjrt::Buffer>*>(buffer); }

}  // namespace

bool is_aligned(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory) % pjrt::Client::kZeroCopyAlignment == 0;
}

bool move_out_of_mapped_file(const at::Tensor& tensor) {
  static std::mutex lock;
  std::lock_guard guard(lock);
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  if (!is_slice_of_private_mapping(storage)) return false;
  c10::DataPtr memory = c10::GetCPUAllocator()->allocate(storage.nbytes());
  std::memcpy(memory.get(), storage.data(), storage.nbytes());
  storage.set_data_ptr_noswap(std::move(memory));
  storage.set_allocator(c10::GetCPUAllocator());
  return true;
}

bool is_copied(const at::Tensor& tensor) {
  if (tensor.nbytes() < kNoticedBytes || is_aligned(tensor.const_data_ptr())) return false;
  const bool moves = is_slice_of_private_mapping(*tensor.storage().unsafeGetStorageImpl());
  return !moves || tensor.storage_offset() * tensor.itemsize() % pjrt::Client::kZeroCopyAlignment != 0;
}

void return_freed_memory() {
  pjrt::return_kept_memory();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void set_deleter_of_slices(c10::DeleterFnPtr deleter) { deleter_of_slices = deleter; }

c10::Storage storage_over(std::shared_ptr<pjrt::Buffer> buffer, const graph::TensorType& form, c10::Device device) {
  const auto nbytes = form.nbytes();
  if (!device.is_cpu()) return cuda::storage_over(std::move(buffer), nbytes, device);
  c10::DataPtr memory;
  void* data = nbytes == 0 ? nullptr : const_cast<void*>(buffer->host_pointer());
  if (!data) {
    memory = c10::GetCPUAllocator()->allocate(nbytes);
    if (nbytes > 0) buffer->copy_to_host(memory.get(), nbytes);
  } else {
    memory = {data, new std::shared_ptr<pjrt::Buffer>(std::move(buffer)), &release_buffer, c10::kCPU};
  }
  return {c10::Storage::use_byte_size_t(), nbytes, std::move(memory), c10::GetCPUAllocator(), true};
}

std::shared_ptr<pjrt::Buffer> own_buffer(const at::Tensor& tensor, const pjrt::BufferType& type) {
  if (tensor.storage_offset() != 0) return nullptr;
  const c10::DataPtr& memory = tensor.storage().data_ptr();
  std::shared_ptr<pjrt::Buffer> buffer = memory.get_deleter() == &release_buffer
                                             ? *static_cast<std::shared_ptr<pjrt::Buffer>*>(memory.get_context())
                                             : cuda::buffer_under(memory);
  const bool fits = buffer && buffer->dims() == type.dims && buffer->element_type() == type.element_type;
  return fits ? buffer : nullptr;
}

}  // namespace tpjrt::engine
