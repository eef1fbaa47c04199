// The elements of a tensor at the places of a sparse one: aten::sparse_mask and _sparse_mask_projection.
// aten::index_select, hspmm, sspaddmm and _sparse_sum_backward of COO tensors: rows are picked, or expanded.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "device/sized/sized.h"
#include "device/sparse/sparse.h"
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

// Returns the elements at each of the wanted positions, in the order of these.
at::Tensor picked(const at::Tensor& self, int64_t dim, const at::Tensor& wanted, std::vector<int64_t> sizes) {
  const at::Tensor all = self._indices();
  if (wanted.numel() == 0) {
    const at::Tensor values = self._values().narrow(0, 0, 0);
    return at::_sparse_coo_tensor_unsafe(all.narrow(1, 0, 0), values, sizes, values.options().layout(c10::kSparse));
  }
  const auto [places, order] = all.select(0, dim).sort(/*stable=*/true, 0, false);
  const at::Tensor first = at::searchsorted(places, wanted);
  const at::Tensor counts = at::searchsorted(places, wanted, /*out_int32=*/false, /*right=*/true).sub(first);
  const Spread found = spread(counts);
  const at::Tensor from =
      order.index_select(0, first.index_select(0, found.of).add(found.within).clamp_max(self._nnz() - 1));
  std::vector<at::Tensor> indices;
  for (int64_t d = 0; d < self.sparse_dim(); ++d) {
    indices.push_back(d == dim ? found.of : all.select(0, d).index_select(0, from));
  }
  const at::Tensor values = self._values().index_select(0, from);
  return at::_sparse_coo_tensor_unsafe(at::stack(indices).narrow(1, 0, found.count), values.narrow(0, 0, found.count),
                                       sizes, values.options().layout(c10::kSparse));
}

// Reads whether the index is in range, like the CPU.
bool are_in_range(const at::Tensor& index, int64_t size) {
  return index.numel() == 0 || index.ge(-size).logical_and(index.lt(size)).all().item<bool>();
}

// aten::index_select(Tensor self, int dim, Tensor index)
at::Tensor index_select_coo(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  const bool is_known = is_pjrt(self) && is_pjrt(index) && index.layout() == c10::kStrided && index.dim() == 1 &&
                        index.scalar_type() == c10::kLong && dim >= -self.dim() && dim < self.dim() && self._nnz() > 0;
  if (!is_known) return on_host<at::Tensor>("aten::index_select", "", self, dim, index);
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (!are_in_range(index, self.size(dim))) return on_host<at::Tensor>("aten::index_select", "", self, dim, index);
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[static_cast<size_t>(dim)] = index.size(0);
  const at::Tensor wanted = at::where(index.lt(0), index.add(self.size(dim)), index).contiguous();
  if (dim < self.sparse_dim()) return picked(self, dim, wanted, sizes);
  const at::Tensor values = self._values().index_select(dim - self.sparse_dim() + 1, wanted);
  return at::_sparse_coo_tensor_unsafe(self._indices().clone(), values, sizes, values.options().layout(c10::kSparse));
}

bool multiplies_rows(const at::Tensor& sparse, const at::Tensor& dense) {
  return is_pjrt(sparse) && is_pjrt(dense) && sparse.is_sparse() && dense.layout() == c10::kStrided &&
         sparse.sparse_dim() == 2 && sparse.dense_dim() == 0 && dense.dim() == 2 && sparse.size(1) == dense.size(0) &&
         sparse.scalar_type() == dense.scalar_type() && c10::isFloatingType(dense.scalar_type()) && sparse._nnz() > 0;
}

// aten::hspmm(Tensor mat1, Tensor mat2): the product's rows for which mat1 has elements, as a COO tensor of rows.
at::Tensor hspmm(const at::Tensor& mat1, const at::Tensor& mat2) {
  if (!multiplies_rows(mat1, mat2)) return on_host<at::Tensor>("aten::hspmm", "", mat1, mat2);
  const at::Tensor all = mat1.coalesce();
  const at::Tensor rows = all._indices().select(0, 0);
  const Runs found = runs(starts_of(rows));
  const Parts parts{found.inverse, all._indices().select(0, 1), all._values()};
  const at::Tensor values = sparse_mm(parts, mat2, c10::kSparse, found.places.size(0));
  return at::_sparse_coo_tensor_unsafe(rows.index_select(0, found.places).unsqueeze(0).narrow(1, 0, found.count),
                                       values.narrow(0, 0, found.count), {mat1.size(0), mat2.size(1)},
                                       values.options().layout(c10::kSparse));
}

// aten::sspaddmm.out: beta * self + alpha * (mat1 @ mat2) for COO tensors and a strided one: the elements of self,
// and all of the product's in each row for which mat1 has elements.
at::Tensor& sspaddmm_out(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                         const at::Scalar& alpha, at::Tensor& out) {
  const bool is_known = multiplies_rows(mat1, mat2) && is_pjrt(self) && self.is_sparse() && is_pjrt(out) &&
                        out.is_sparse() && self.sparse_dim() == 2 && self.dense_dim() == 0 &&
                        self.sizes() == at::IntArrayRef({mat1.size(0), mat2.size(1)}) &&
                        self.scalar_type() == mat1.scalar_type() && out.scalar_type() == mat1.scalar_type();
  if (!is_known) {
    out = on_host<at::Tensor>("aten::sspaddmm", "out", self, mat1, mat2, beta, alpha, out);
    return out;
  }
  const at::Tensor product = hspmm(mat1, mat2), rows = product._indices().select(0, 0);
  const int64_t width = mat2.size(1), count = rows.size(0);
  const at::Tensor columns = at::arange(width, rows.options()).repeat({count});
  const at::Tensor each = rows.unsqueeze(1).expand({count, width}).reshape({-1});
  const at::Tensor indices = at::cat({self._indices(), at::stack({each, columns})}, 1);
  const at::Tensor values = at::cat({self._values().mul(beta), product._values().reshape({-1}).mul(alpha)});
  const c10::IntArrayRef sizes = self.sizes();
  become(out, sizes, indices, values, /*is_coalesced=*/false);
  return out;
}

// aten::_sparse_sum_backward(Tensor grad, Tensor self, int[] dim): the sum's gradient at each of self's elements.
at::Tensor sum_backward(const at::Tensor& gradient, const at::Tensor& self, c10::IntArrayRef dims) {
  const bool is_known = is_pjrt(gradient) && is_pjrt(self) && self.is_sparse() && self._nnz() > 0 && !dims.empty();
  if (!is_known) return on_host<at::Tensor>("aten::_sparse_sum_backward", "", gradient, self, dims);
  const at::Tensor all = self.coalesce(), values = all._values();
  std::vector<bool> is_summed(static_cast<size_t>(self.dim()));
  for (const int64_t dim : dims) is_summed[static_cast<size_t>(at::maybe_wrap_dim(dim, self.dim()))] = true;
  const auto first_dense = static_cast<size_t>(self.sparse_dim());
  std::vector<int64_t> kept, sizes;
  for (size_t d = 0; d < first_dense; ++d) {
    if (is_summed[d]) continue;
    kept.push_back(static_cast<int64_t>(d));
    sizes.push_back(self.size(static_cast<int64_t>(d)));
  }
  if (kept.empty() == gradient.is_sparse()) {
    return on_host<at::Tensor>("aten::_sparse_sum_backward", "", gradient, self, dims);
  }
  at::Tensor each;
  if (kept.empty()) {
    each = gradient.unsqueeze(0);
  } else {
    const at::Tensor given = gradient.coalesce();
    std::vector<at::Tensor> places;
    for (const int64_t dim : kept) places.push_back(all._indices().select(0, dim));
    if (given._nnz() == 0) return on_host<at::Tensor>("aten::_sparse_sum_backward", "", gradient, self, dims);
    const Found found = find_in(flat_places(given), flat_places(at::stack(places), sizes));
    each = where_chosen(found.is_there, given._values().index_select(0, found.position));
  }
  for (size_t d = first_dense; d < is_summed.size(); ++d) {
    if (is_summed[d]) each = each.unsqueeze(static_cast<int64_t>(d - first_dense) + 1);
  }
  return with_values(all, each.expand(values.sizes()).contiguous());
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("index_select", TORCH_FN(index_select_coo));
  m.impl("hspmm", TORCH_FN(hspmm));
  m.impl("sspaddmm.out", TORCH_FN(sspaddmm_out));
  m.impl("_sparse_sum_backward", TORCH_FN(sum_backward));
}

}  // namespace

}  // namespace tpjrt::device
