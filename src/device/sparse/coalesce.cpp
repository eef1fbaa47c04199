// aten::_coalesce of COO tensors: elements of one place are summed, and places sorted. How many there are is data, and is read
// (Note [Sizes of data]).
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <torch/library.h>

#include "device/sized/runs.h"
#include "device/sparse/coordinates.h"

namespace tpjrt::device {
namespace {

at::Tensor coalesce(const at::Tensor& self) {
  if (self._nnz() < 2 || self.sparse_dim() == 0) {
    at::Tensor values = self._values().clone(), indices = self._indices().clone();
    if (self._nnz() > 1) {  // all at the one place
      values = summed_at(flat_places(indices, {}), values, 1);
      indices = indices.narrow(1, 0, 1);
    }
    return at::_sparse_coo_tensor_unsafe(indices, values, self.sizes(), values.options().layout(c10::kSparse))
        ._coalesced_(true);
  }
  const auto [places, order] = flat_places(self).sort(/*stable=*/true, 0, false);
  const Runs found = runs(starts_of(places));
  const at::Tensor values = summed_at(found.inverse, self._values().index_select(0, order), found.places.size(0));
  const at::Tensor indices = self._indices().index_select(1, order.index_select(0, found.places));
  return at::_sparse_coo_tensor_unsafe(indices.narrow(1, 0, found.count), values.narrow(0, 0, found.count),
                                       self.sizes(), values.options().layout(c10::kSparse))
      ._coalesced_(true);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) { m.impl("_coalesce", TORCH_FN(coalesce)); }

}  // namespace
}  // namespace tpjrt::device
