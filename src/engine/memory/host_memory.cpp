// Implements Note [Mapped weights].
#include "engine/memory/host_memory.h"

#include <ATen/MapAllocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstring>
#include <mutex>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "pjrt/client.h"

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
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void set_deleter_of_slices(c10::DeleterFnPtr deleter) { deleter_of_slices = deleter; }

}  // namespace tpjrt::engine
