// Coordinates of COO tensors: their flat numbers, PyTorch's own hook for numbering them, and aten::_coalesce.
#include "device/sparse/sparse.h"

#include <ATen/native/DispatchStub.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <functional>
#include <numeric>

#include "device/sized/sized.h"

namespace tpjrt::device {

at::Tensor flat_places(const at::Tensor& indices, c10::IntArrayRef sizes) {
  at::Tensor flat;
  for (int64_t dim = 0; dim < indices.size(0); ++dim) {
    const at::Tensor row = indices.select(0, dim).to(c10::kLong);
    flat = dim == 0 ? row : flat.mul(sizes[static_cast<size_t>(dim)]).add(row);
  }
  return flat.defined() ? flat : at::zeros({indices.size(1)}, indices.options().dtype(c10::kLong));
}

at::Tensor flat_places(const at::Tensor& sparse) { return flat_places(sparse._indices(), sparse.sizes()); }

at::Tensor flat_places(const at::Tensor& row, const at::Tensor& column, int64_t columns) {
  return row.to(c10::kLong).mul(columns).add(column);
}

int64_t places_of(const at::Tensor& sparse) {
  const auto sizes = sparse.sizes().slice(0, static_cast<size_t>(sparse.sparse_dim()));
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

at::Tensor by_place(const at::Tensor& strided, const at::Tensor& sparse) {
  std::vector<int64_t> sizes{places_of(sparse)};
  for (int64_t dim = sparse.sparse_dim(); dim < sparse.dim(); ++dim) sizes.push_back(sparse.size(dim));
  return strided.reshape(sizes);
}

Found find_in(const at::Tensor& sorted, const at::Tensor& wanted) {
  const at::Tensor position = at::searchsorted(sorted.contiguous(), wanted.contiguous()).clamp_max(sorted.size(0) - 1);
  return {position, sorted.index_select(0, position).eq(wanted)};
}

at::Tensor where_chosen(const at::Tensor& chosen, const at::Tensor& values) {
  std::vector<int64_t> sizes(static_cast<size_t>(values.dim()), 1);
  sizes[0] = chosen.size(0);
  return at::where(chosen.reshape(sizes), values, at::zeros({}, values.options()));
}

at::Tensor summed_at(const at::Tensor& places, const at::Tensor& values, int64_t n) {
  const c10::ScalarType dtype = values.scalar_type();
  const c10::ScalarType wide = dtype == c10::kBool                 ? c10::kInt
                               : c10::isReducedFloatingType(dtype) ? c10::kFloat
                                                                   : dtype;
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes[0] = n;
  return at::zeros(sizes, values.options().dtype(wide)).index_add(0, places, values.to(wide)).to(dtype);
}

at::Tensor with_values(const at::Tensor& pattern, const at::Tensor& values) {
  std::vector<int64_t> sizes = pattern.sizes().slice(0, static_cast<size_t>(pattern.sparse_dim())).vec();
  const auto dense = values.sizes().slice(1);
  sizes.insert(sizes.end(), dense.begin(), dense.end());
  return at::_sparse_coo_tensor_unsafe(pattern._indices().clone(), values, sizes, values.options().layout(c10::kSparse))
      ._coalesced_(pattern.is_coalesced());
}

at::Tensor& written(at::Tensor& out, const at::Tensor& result) {
  if (out.sizes() != result.sizes()) out.resize_(result.sizes());
  out.copy_(result);
  return out;
}

void become(const at::Tensor& sparse, c10::IntArrayRef sizes, const at::Tensor& indices, const at::Tensor& values,
            bool is_coalesced) {
  at::SparseTensorImpl* impl = at::sparse::get_sparse_impl(sparse);
  impl->raw_resize_(indices.size(0), values.dim() - 1, sizes);
  at::sparse::alias_into_sparse(sparse, indices, values);
  impl->set_coalesced(is_coalesced);
}

namespace {

// Sums elements of one place, and sorts the places. Their number is data, and is read (Note [Data-dependent sizes]).
at::Tensor coalesce(const at::Tensor& self) {
  if (self._nnz() < 2 || self.sparse_dim() == 0) {
    at::Tensor values = self._values().clone(), indices = self._indices().clone();
    if (self._nnz() > 1) {  // all elements are at the one place
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

// Declared here because torch's wheels don't contain ATen/native/sparse/SparseStubs.h.

namespace at::native {

using flatten_indices_fn = Tensor (*)(const Tensor& indices, IntArrayRef size);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)

static Tensor flatten_indices_on_device(const Tensor& indices, IntArrayRef size) {
  return tpjrt::device::flat_places(indices, size);
}
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &flatten_indices_on_device)

}  // namespace at::native
