// Products of two sparse matrices, and what they share with other ops on rows that are picked.
#include "device/sparse/matrices.h"

#include <ATen/ops/_convert_indices_from_coo_to_csr.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/resize_as_sparse.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>

#include "device/sized/sized.h"
#include "device/sparse/coordinates.h"
#include "device/sparse/product.h"

namespace tpjrt::device {
namespace {

at::Tensor no_elements(c10::IntArrayRef sizes, const at::TensorOptions& options) {
  const at::Tensor indices = at::empty({2, 0}, options.dtype(c10::kLong));
  return at::_sparse_coo_tensor_unsafe(indices, at::empty({0}, options), sizes, options.layout(c10::kSparse))
      ._coalesced_(true);
}

struct ByRows {
  at::Tensor ends, columns, values;
};

ByRows by_rows_of(const at::Tensor& matrix) {
  if (matrix.layout() == c10::kSparseCsr) {
    return {matrix.crow_indices().to(c10::kLong), matrix.col_indices().to(c10::kLong), matrix.values()};
  }
  const at::Tensor all = coo_of(matrix).coalesce();
  const at::Tensor ends = at::_convert_indices_from_coo_to_csr(all._indices().select(0, 0), all.size(0));
  return {ends, all._indices().select(0, 1), all._values()};
}

}  // namespace

Spread spread(const at::Tensor& counts) {
  Spread all;
  const at::Tensor ends = counts.cumsum(0);
  all.count = ends.select(0, -1).item<int64_t>();
  const at::Tensor number = at::arange(rounded_size(all.count, INT64_MAX), ends.options());
  all.is_one = number.lt(all.count);
  all.of = at::searchsorted(ends, number, /*out_int32=*/false, /*right=*/true).clamp_max(counts.size(0) - 1);
  const at::Tensor begin = ends.sub(counts).index_select(0, all.of), most = counts.index_select(0, all.of).sub(1);
  all.within = number.sub(begin).minimum(most).clamp_min(0);
  return all;
}

at::Tensor csr_of(const at::Tensor& coalesced, c10::ScalarType indices) {
  const at::Tensor rows = coalesced._indices().select(0, 0), columns = coalesced._indices().select(0, 1);
  const at::Tensor ends = at::_convert_indices_from_coo_to_csr(rows, coalesced.size(0), indices == c10::kInt);
  return at::_sparse_compressed_tensor_unsafe(ends, columns.to(indices, /*non_blocking=*/false, /*copy=*/true),
                                              coalesced._values(), coalesced.sizes(),
                                              coalesced.options().layout(c10::kSparseCsr));
}

at::Tensor coo_of(const at::Tensor& compressed) {
  if (compressed.is_sparse()) return compressed;
  const Parts parts = parts_of(compressed);
  const auto [rows, columns] = rows_and_columns(parts, compressed.layout());
  return at::_sparse_coo_tensor_unsafe(at::stack({rows.to(c10::kLong), columns.to(c10::kLong)}), parts.values,
                                       compressed.sizes(), compressed.options().layout(c10::kSparse))
      ._coalesced_(compressed.layout() == c10::kSparseCsr);
}

at::Tensor& give(const at::Tensor& result, at::Tensor& out) {
  at::resize_as_sparse_(out, result);
  out.copy_(result);
  return out;
}

at::Tensor product_of_sparse(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = coo_of(a);
  const ByRows right = by_rows_of(b);
  const std::vector<int64_t> sizes{a.size(0), b.size(1)};
  if (left._nnz() == 0 || right.columns.size(0) == 0) return no_elements(sizes, left._values().options());
  const at::Tensor rows = left._indices().select(0, 0), inner = left._indices().select(0, 1);
  const at::Tensor begins = right.ends.index_select(0, inner);
  const Spread terms = spread(right.ends.index_select(0, inner.add(1)).sub(begins));
  if (terms.count == 0) return no_elements(sizes, left._values().options());
  const at::Tensor other = begins.index_select(0, terms.of).add(terms.within);
  const at::Tensor product = left._values().index_select(0, terms.of).mul(right.values.index_select(0, other));
  const at::Tensor indices = at::stack({rows.index_select(0, terms.of), right.columns.index_select(0, other)});
  return at::_sparse_coo_tensor_unsafe(indices, where_chosen(terms.is_one, product), sizes,
                                       product.options().layout(c10::kSparse))
      .coalesce();
}

}  // namespace tpjrt::device
