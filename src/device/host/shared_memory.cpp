// Copy on write, through the hook that PyTorch calls before memory is written.
#include "device/host/shared_memory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/COW.h>

#include <memory>
#include <utility>

namespace tpjrt::device {

std::atomic<uint64_t>& copies_on_write() {
  static std::atomic<uint64_t> count{0};
  return count;
}

#if __has_include(<c10/core/StorageMaterializer.h>)

namespace {

// Keeps memory alive for several storages.
struct Owner {
  c10::DataPtr memory;
};
using Share = std::shared_ptr<Owner>;

void drop_share(void* share) { delete static_cast<Share*>(share); }

c10::DataPtr share_of(const Share& owner) {
  return {owner->memory.get(), new Share(owner), &drop_share, owner->memory.device()};
}

// PyTorch calls this before a write; reads don't call it.
void copy_before_write(c10::StorageImpl* storage) {
  c10::DataPtr& current = storage->_mutable_data_ptr_no_checks();
  const Share& share = *static_cast<Share*>(current.get_context());
  if (share.use_count() == 1 && share->memory.get_deleter() != nullptr &&
      share->memory.get_context() == current.get()) {
    storage->set_data_ptr_noswap(std::move(share->memory));  // PyTorch's own memory, without another user
    return;
  }
  const c10::DeviceGuard guard(current.device());
  c10::DataPtr copy = storage->allocator()->clone(current.get(), storage->nbytes());
  storage->set_data_ptr_noswap(std::move(copy));
  copies_on_write()++;
}

at::Tensor tensor_over(c10::DataPtr memory, size_t nbytes, const at::Tensor& like) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes, std::move(memory),
                                                       c10::GetAllocator(like.device().type()), /*resizable=*/true);
  storage->set_materializer(&copy_before_write);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(std::move(storage)),
      c10::DispatchKeySet(like.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return tensor;
}

bool can_share(const at::Tensor& tensor) { return tensor.is_cpu() || tensor.is_cuda(); }

bool has_owner(const c10::StorageImpl& storage) { return storage.data_ptr().get_deleter() == &drop_share; }

}  // namespace

std::optional<at::Tensor> write_protected(const at::Tensor& source) {
  if (!can_share(source)) return std::nullopt;
  auto* keep = new c10::Storage(source.storage());
  const auto drop = [](void* storage) { delete static_cast<c10::Storage*>(storage); };
  void* data = const_cast<void*>(source.storage().data());
  auto owner = std::make_shared<Owner>(Owner{c10::DataPtr(data, keep, drop, source.device())});
  return tensor_over(share_of(owner), source.storage().nbytes(), source);
}

std::optional<at::Tensor> snapshot(const at::Tensor& tensor) {
  if (!can_share(tensor)) return std::nullopt;
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (!has_owner(*storage)) {
    // Other users of the memory (NumPy, a mapped file) may write to it unnoticed.
    if (storage->has_materializer() || !c10::impl::cow::has_simple_data_ptr(*storage)) return std::nullopt;
    auto owner = std::make_shared<Owner>();
    owner->memory = std::move(storage->_mutable_data_ptr_no_checks());
    storage->set_data_ptr_noswap(share_of(owner));
  }
  if (!storage->has_materializer()) storage->set_materializer(&copy_before_write);
  auto* keep = new Share(*static_cast<Share*>(storage->data_ptr().get_context()));
  auto* data =
      static_cast<char*>((*keep)->memory.get()) + static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
  return at::from_blob(
      data, tensor.sizes(), tensor.strides(), [keep](void*) { delete keep; }, tensor.options(), tensor.device());
}

#else

std::optional<at::Tensor> write_protected(const at::Tensor&) { return std::nullopt; }
std::optional<at::Tensor> snapshot(const at::Tensor&) { return std::nullopt; }

#endif

}  // namespace tpjrt::device
