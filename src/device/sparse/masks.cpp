// The elements of a tensor at the places of a sparse one: aten::sparse_mask and _sparse_mask_projection.
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "device/sparse/coordinates.h"
#include "device/sparse/elements.h"
#include "device/sparse/matrices.h"
#include "device/sparse/product.h"
#include "device/sparse/under_cpu.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

bool is_masked_here(const at::Tensor& self, const at::Tensor& mask) {
  return is_pjrt(self) && is_pjrt(mask) && mask.is_sparse() && self.sizes() == mask.sizes() && mask.numel() > 0;
}

// aten::sparse_mask(Tensor self, Tensor mask): the mask's places, with self's elements there.
at::Tensor sparse_mask(const at::Tensor& self, const at::Tensor& mask) {
  if (is_masked_here(self, mask) && self.layout() == c10::kStrided) {
    if (mask.dim() == 2 && mask.sparse_dim() == 2)
      return with_values(mask, elements_at(self, parts_of(mask), mask.layout()));
    return with_values(mask, by_place(self, mask).index_select(0, flat_places(mask)));
  }
  if (is_masked_here(self, mask) && self.is_sparse() && self.sparse_dim() == mask.sparse_dim()) {
    if (self._nnz() == 0 || mask._nnz() == 0) {
      std::vector<int64_t> sizes = self._values().sizes().vec();
      sizes[0] = mask._nnz();
      return with_values(mask, at::zeros(sizes, self._values().options()));
    }
    const at::Tensor all = self.coalesce();
    const Found found = find_in(flat_places(all), flat_places(mask));
    return with_values(mask, where_chosen(found.is_there, all._values().index_select(0, found.position)));
  }
  return on_host<at::Tensor>("aten::sparse_mask", "", self, mask);
}

// aten::_sparse_mask_projection(Tensor self, Tensor mask, bool accumulate_matches): self's places, with its values
// where the mask has an element, times their number if matches are accumulated.
at::Tensor mask_projection(const at::Tensor& self, const at::Tensor& mask, bool accumulate_matches) {
  const bool is_known = is_masked_here(self, mask) && self.is_sparse() && self.sparse_dim() == mask.sparse_dim() &&
                        self._nnz() > 0 && mask._nnz() > 0;
  if (!is_known) return on_host<at::Tensor>("aten::_sparse_mask_projection", "", self, mask, accumulate_matches);
  const at::Tensor one = at::_sparse_coo_tensor_unsafe(
      mask._indices(), at::ones({mask._nnz()}, mask._values().options().dtype(c10::kLong)),
      mask.sizes().slice(0, static_cast<size_t>(mask.sparse_dim())),
      mask._values().options().dtype(c10::kLong).layout(c10::kSparse));
  const at::Tensor all = mask.is_coalesced() ? one._coalesced_(true) : one.coalesce();
  const Found found = find_in(flat_places(all), flat_places(self));
  at::Tensor values = self._values();
  if (accumulate_matches) {
    std::vector<int64_t> sizes(static_cast<size_t>(values.dim()), 1);
    sizes[0] = self._nnz();
    const at::Tensor matches = all._values().index_select(0, found.position);
    values = values.mul(matches.reshape(sizes)).to(values.scalar_type());
  }
  return with_values(self, where_chosen(found.is_there, values));
}

// sparse_mask with a compressed mask.
at::Tensor sparse_mask_of_compressed(const at::Tensor& self, const at::Tensor& mask) {
  const bool is_known = is_pjrt(self) && is_pjrt(mask) && self.layout() == c10::kStrided && mask.dim() == 2 &&
                        mask.dense_dim() == 0 && self.sizes() == mask.sizes() && mask.numel() > 0;
  if (!is_known) {
    return shared_kernel<at::Tensor>(c10::DispatchKey::SparseCsrCPU, "aten::sparse_mask", "", self, mask);
  }
  const Parts parts = parts_of(mask);
  const at::Tensor values = elements_at(self, parts, mask.layout());
  return with_own_places({parts.compressed, parts.plain, values}, mask.sizes(), mask.layout());
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("sparse_mask", TORCH_FN(sparse_mask));
  m.impl("_sparse_mask_projection", TORCH_FN(mask_projection));
}
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) { m.impl("sparse_mask", TORCH_FN(sparse_mask_of_compressed)); }

}  // namespace
}  // namespace tpjrt::device
