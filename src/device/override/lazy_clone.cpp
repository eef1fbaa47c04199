// _lazy_clone: a tensor whose memory is copied when one of the two is written. Values are immutable, so both storages
// share one.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <mutex>
#include <utility>

#include "device/tensor/storage.h"
#include "graph/node.h"

namespace tpjrt::device {

namespace {

at::Tensor lazy_clone(const at::Tensor& self) {
  LazyStorage* storage = storage_of(self);
  c10::Storage copy(c10::make_intrusive<LazyStorage>(storage->nbytes(), self.device().index()));
  auto impl = c10::make_intrusive<c10::TensorImpl>(std::move(copy), self.key_set(), self.dtype());
  impl->set_sizes_and_strides(self.sizes(), self.strides(), self.storage_offset());
  at::Tensor result(std::move(impl));
  const std::lock_guard lock(graph::graph_lock());
  storage_of(result)->slot.bind(storage->slot.value());
  return result;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_lazy_clone", TORCH_FN(lazy_clone)); }

}  // namespace

}  // namespace tpjrt::device
