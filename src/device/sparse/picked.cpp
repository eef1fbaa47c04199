// aten::index_select, hspmm, sspaddmm and _sparse_sum_backward of COO tensors: rows are picked, or expanded.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "device/sized/runs.h"
#include "device/sparse/coordinates.h"
#include "device/sparse/matrices.h"
#include "device/sparse/product.h"
#include "device/sparse/under_cpu.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

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
