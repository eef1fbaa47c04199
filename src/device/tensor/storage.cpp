// Lazy storages, and the tensors over them.
#include "device/tensor/storage.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include "device/tensor/factory.h"

namespace tpjrt::device {
namespace {

c10::intrusive_ptr<c10::StorageImpl> create(c10::StorageImpl::use_byte_size_t /*tag*/, c10::SymInt nbytes,
                                            c10::DataPtr data, c10::Allocator* /*allocator*/, bool /*resizable*/) {
  // A slice of a storage, for example, would share memory, which values don't have.
  TORCH_CHECK_NOT_IMPLEMENTED(!data || data.get_deleter() == allocator()->raw_deleter(),
                              "pjrt: a storage on the device can't be made over other memory (a slice of a storage?); "
                              "slice a tensor, or take the storage of tensor.cpu()");
  const auto index = data ? data.device().index() : c10::impl::getDeviceGuardImpl(kPjrt)->getDevice().index();
  return c10::make_intrusive<LazyStorage>(static_cast<size_t>(nbytes.guard_int(__FILE__, __LINE__)), index);
}

}  // namespace

LazyStorage::LazyStorage(size_t nbytes, c10::DeviceIndex index)
    : c10::StorageImpl(use_byte_size_t(), static_cast<int64_t>(nbytes), next_address(index), device::allocator(),
                       /*resizable=*/true) {}

LazyStorage::~LazyStorage() { drop(); }

void LazyStorage::release_resources() {
  drop();
  c10::StorageImpl::release_resources();
}

void LazyStorage::drop() {
  graph::Value value;  // nodes are freed after the lock is released
  std::lock_guard lock(graph::graph_lock());
  value = slot.value();
  slot.bind({});
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
  c10::Storage storage(c10::make_intrusive<LazyStorage>(type->nbytes(), device));
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(type->dtype));
  if (type->rank() != 1 || type->sizes[0] != 0) impl->set_sizes_and_strides(type->sizes, type->strides);
  return at::Tensor(std::move(impl));
}

std::vector<at::Tensor> make_node_tensors(graph::SignaturePtr signature, c10::SmallVectorImpl<graph::Value>& operands,
                                          c10::SmallVectorImpl<graph::ScalarValue>& scalars) {
  const graph::NodePtr node = graph::make_node(signature, operands, scalars);
  std::vector<at::Tensor> tensors;
  for (uint32_t i = 0; i < signature->results.size(); ++i) {
    tensors.push_back(make_tensor(signature->results[i], signature->device));
    storage_of(tensors.back())->slot.bind({node, i});
  }
  return tensors;
}

}  // namespace tpjrt::device
