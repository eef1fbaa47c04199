// Lazy storages, their addresses, and the tensors over them.
#include "device/storage.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <atomic>

namespace tpjrt::device {
namespace {

struct Range {
  char* base;
  size_t size;
};

// As much as there is, 16 TB at best: `ulimit -v` and valgrind allow less.
Range reserve_range() {
  for (int bits = 44; bits >= 32; bits -= 2) {
    const size_t size = size_t{1} << bits;
    void* range = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range != MAP_FAILED) return {static_cast<char*>(range), size};
  }
  TORCH_CHECK(false, "pjrt: can't reserve address space for device tensors (ulimit -v?)");
}

// Each storage gets the next 64-byte step of a reserved range: never reused (but for 2^38 storages at best), so equal
// addresses mean one storage.
void* next_address() {
  constexpr size_t kStep = 64;
  static const Range range = reserve_range();
  static std::atomic<size_t> next{kStep};
  return range.base + (next.fetch_add(kStep, std::memory_order_relaxed) & (range.size - 1));
}

void no_memory(void* /*context*/) {}

c10::DataPtr address(c10::DeviceIndex device) {
  void* pointer = next_address();
  return {pointer, pointer, &no_memory, c10::Device(kPjrt, device)};
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t /*n*/) override {
    return address(c10::impl::getDeviceGuardImpl(kPjrt)->getDevice().index());
  }
  c10::DeleterFnPtr raw_deleter() const override { return &no_memory; }
  void copy_data(void* /*dest*/, const void* /*src*/, std::size_t /*count*/) const override {
    TORCH_CHECK(false, "pjrt: device memory can't be copied through the allocator; use tensor.copy_()");
  }
};

c10::intrusive_ptr<c10::StorageImpl> create(c10::StorageImpl::use_byte_size_t /*tag*/, c10::SymInt nbytes,
                                            c10::DataPtr data, c10::Allocator* /*allocator*/, bool /*resizable*/) {
  const auto index = data ? data.device().index() : c10::impl::getDeviceGuardImpl(kPjrt)->getDevice().index();
  return c10::make_intrusive<LazyStorage>(static_cast<size_t>(nbytes.guard_int(__FILE__, __LINE__)), index);
}

}  // namespace

LazyStorage::LazyStorage(size_t nbytes, c10::DeviceIndex index)
    : c10::StorageImpl(use_byte_size_t(), static_cast<int64_t>(nbytes), address(index), device::allocator(),
                       /*resizable=*/true) {}

LazyStorage::~LazyStorage() { drop(); }

void LazyStorage::release_resources() {
  drop();
  c10::StorageImpl::release_resources();
}

void LazyStorage::drop() {
  graph::Value value;  // nodes are freed after the lock is let go
  std::lock_guard lock(graph::graph_lock());
  value = cell.value();
  cell.bind({});
}

c10::Allocator* allocator() {
  static auto* instance = new Allocator;
  return instance;
}

void install_storage() {
  c10::SetAllocator(kPjrt, allocator());
  c10::SetStorageImplCreate(kPjrt, &create);
}

bool is_pjrt(const at::Tensor& tensor) { return tensor.device().type() == kPjrt; }

LazyStorage* storage_of(const c10::Storage& storage) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl != nullptr && impl->allocator() == allocator(),
              "pjrt: this tensor's storage was not made by the pjrt device (a storage that was pickled or shared from "
              "its address?); copy the tensor to the CPU first");
  return static_cast<LazyStorage*>(impl);
}

LazyStorage* storage_of(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.unsafeGetTensorImpl()->has_storage(), "pjrt: expected a strided tensor, got layout ",
              tensor.layout());
  return storage_of(tensor.unsafeGetTensorImpl()->unsafe_storage());
}

at::Tensor make_tensor(graph::TypePtr type, c10::DeviceIndex device) {
  const auto nbytes = static_cast<size_t>(type->numel()) * c10::elementSize(type->dtype);
  c10::Storage storage(c10::make_intrusive<LazyStorage>(nbytes, device));
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(type->dtype));
  if (type->rank() != 1 || type->sizes[0] != 0) impl->set_sizes_and_strides(type->sizes, type->strides);
  return at::Tensor(std::move(impl));
}

}  // namespace tpjrt::device
