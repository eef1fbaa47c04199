// Products of two sparse matrices, and helpers shared with other ops that pick rows.
#include "device/sparse/sparse.h"

#include <ATen/Context.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/resize_as_sparse.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>

#include "device/sized/sized.h"

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

// Returns the ends of rows in sorted row numbers. (PyTorch's op for that has a kernel on the CPU only.)
at::Tensor ends_of(const at::Tensor& rows, int64_t count, c10::ScalarType indices) {
  return at::searchsorted(rows.contiguous(), at::arange(count + 1, rows.options())).to(indices);
}

ByRows by_rows_of(const at::Tensor& matrix) {
  if (matrix.layout() == c10::kSparseCsr) {
    return {matrix.crow_indices().to(c10::kLong), matrix.col_indices().to(c10::kLong), matrix.values()};
  }
  const at::Tensor all = coo_of(matrix).coalesce();
  const at::Tensor ends = ends_of(all._indices().select(0, 0), all.size(0), c10::kLong);
  return {ends, all._indices().select(0, 1), all._values()};
}

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// torch_pjrt::sparse_matmul: the product of two CSR matrices, with `columns` columns. Returns its row ends, and the
// columns and values of its elements, at most `size`; entries beyond them are 0.
Three matmul_meta(const at::Tensor& a_ends, const at::Tensor& /*a_columns*/, const at::Tensor& a_values,
                  const at::Tensor& /*b_ends*/, const at::Tensor& b_columns, const at::Tensor& /*b_values*/,
                  int64_t /*columns*/, int64_t size) {
  return {at::empty_like(a_ends), at::empty({size}, b_columns.options()), at::empty({size}, a_values.options())};
}

Three matmul_composite(const at::Tensor& a_ends, const at::Tensor& a_columns, const at::Tensor& a_values,
                       const at::Tensor& b_ends, const at::Tensor& b_columns, const at::Tensor& b_values,
                       int64_t columns, int64_t size) {
  const int64_t rows = a_ends.size(0) - 1;
  const at::Tensor row = rows_and_columns({a_ends, a_columns, {}}, c10::kSparseCsr).first;
  const at::Tensor begins = b_ends.index_select(0, a_columns);
  const Spread terms = spread(b_ends.index_select(0, a_columns.add(1)).sub(begins), size);
  const at::Tensor other = begins.index_select(0, terms.of).add(terms.within);
  const at::Tensor product = a_values.index_select(0, terms.of).mul(b_values.index_select(0, other));
  const at::Tensor place = flat_places(row.index_select(0, terms.of), b_columns.index_select(0, other), columns);
  const auto [places, order] = at::where(terms.is_one, place, rows * columns).sort(/*stable=*/true, 0, false);
  const at::Tensor is_one = places.lt(rows * columns), is_first = starts_of(places).logical_and(is_one);
  const at::Tensor number = is_first.to(c10::kLong).cumsum(0).sub(1);  // the element's number
  const at::Tensor values = summed_at(number, where_chosen(is_one, product.index_select(0, order)), size);
  const at::Tensor firsts = at::where(is_first, places, 0);
  const at::Tensor found = at::zeros({size}, places.options()).index_add(0, number, firsts);
  const at::Tensor counts = at::zeros({rows + 1}, places.options())
                                .index_add(0, firsts.div(columns, "floor").add(1), is_first.to(c10::kLong));
  return {counts.cumsum(0), found.remainder(columns), values};
}

// Uses MKL's product, whose rows are in no order.
Three matmul_on_cpu(const at::Tensor& a_ends, const at::Tensor& a_columns, const at::Tensor& a_values,
                    const at::Tensor& b_ends, const at::Tensor& b_columns, const at::Tensor& b_values, int64_t columns,
                    int64_t size) {
  if (!at::hasMKL()) {
    return matmul_composite(a_ends, a_columns, a_values, b_ends, b_columns, b_values, columns, size);
  }
  const int64_t rows = a_ends.size(0) - 1, inner = b_ends.size(0) - 1;
  const auto csr = [](const at::Tensor& ends, const at::Tensor& plain, const at::Tensor& values, int64_t m, int64_t n) {
    return at::_sparse_compressed_tensor_unsafe(ends.contiguous(), plain.contiguous(), values.contiguous(), {m, n},
                                                values.options().layout(c10::kSparseCsr));
  };
  const at::Tensor product =
      at::mm(csr(a_ends, a_columns, a_values, rows, inner), csr(b_ends, b_columns, b_values, inner, columns));
  const at::Tensor ends = product.crow_indices(), given = product.col_indices(), values = product.values();
  const int64_t count = given.numel();
  at::Tensor order = at::arange(count, given.options());
  const auto *end = ends.const_data_ptr<int64_t>(), *column = given.const_data_ptr<int64_t>();
  auto* number = order.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < rows; ++i) {
    std::sort(number + end[i], number + end[i + 1], [&](int64_t x, int64_t y) { return column[x] < column[y]; });
  }
  at::Tensor sorted = at::zeros({size}, given.options()), sorted_values = at::zeros({size}, values.options());
  at::Tensor some = sorted.narrow(0, 0, count), some_values = sorted_values.narrow(0, 0, count);
  at::index_select_out(some, given, 0, order);
  at::index_select_out(some_values, values, 0, order);
  return {ends, sorted, sorted_values};
}

TORCH_LIBRARY_FRAGMENT(torch_pjrt, m) {
  m.def(
      "sparse_matmul(Tensor a_ends, Tensor a_columns, Tensor a_values, Tensor b_ends, Tensor b_columns, Tensor "
      "b_values, "
      "int columns, int size) -> (Tensor ends, Tensor columns, Tensor values)");
}
TORCH_LIBRARY_IMPL(torch_pjrt, Meta, m) { m.impl("sparse_matmul", TORCH_FN(matmul_meta)); }
TORCH_LIBRARY_IMPL(torch_pjrt, CPU, m) { m.impl("sparse_matmul", TORCH_FN(matmul_on_cpu)); }
TORCH_LIBRARY_IMPL(torch_pjrt, CompositeExplicitAutograd, m) { m.impl("sparse_matmul", TORCH_FN(matmul_composite)); }
TORCH_LIBRARY_IMPL(torch_pjrt, PrivateUse1, m) {
  m.impl("sparse_matmul", torch::CppFunction::makeFromBoxedFunction<&record_whole>());
}

}  // namespace

Spread spread(const at::Tensor& counts, std::optional<int64_t> size) {
  Spread all;
  const at::Tensor ends = counts.cumsum(0), last = ends.select(0, -1);
  if (!size) {
    all.count = last.item<int64_t>();
    size = rounded_size(all.count, INT64_MAX);
  }
  const at::Tensor number = at::arange(*size, ends.options());
  all.is_one = number.lt(last);
  all.of = at::searchsorted(ends, number, /*out_int32=*/false, /*right=*/true).clamp_max(counts.size(0) - 1);
  const at::Tensor begin = ends.sub(counts).index_select(0, all.of), most = counts.index_select(0, all.of).sub(1);
  all.within = number.sub(begin).minimum(most).clamp_min(0);
  return all;
}

at::Tensor csr_of(const at::Tensor& coalesced, c10::ScalarType indices) {
  const at::Tensor rows = coalesced._indices().select(0, 0), columns = coalesced._indices().select(0, 1);
  const at::Tensor ends = ends_of(rows, coalesced.size(0), indices);
  return at::_sparse_compressed_tensor_unsafe(ends, columns.to(indices, /*non_blocking=*/false, /*copy=*/true),
                                              coalesced._values(), coalesced.sizes(),
                                              coalesced.options().layout(c10::kSparseCsr));
}

at::Tensor with_own_places(const Parts& parts, c10::IntArrayRef sizes, c10::Layout layout) {
  const auto own = [](const at::Tensor& indices) {
    return indices.to(c10::kLong, /*non_blocking=*/false, /*copy=*/true);
  };
  return at::_sparse_compressed_tensor_unsafe(own(parts.compressed), own(parts.plain), parts.values, sizes,
                                              parts.values.options().layout(layout));
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
  const ByRows left = by_rows_of(a), right = by_rows_of(b);
  const std::vector<int64_t> sizes{a.size(0), b.size(1)};
  const auto none = [&] { return no_elements(sizes, left.values.options()); };
  if (left.columns.size(0) == 0 || right.columns.size(0) == 0) return none();
  const at::Tensor terms = right.ends.diff().index_select(0, left.columns).sum();
  const int64_t most = terms.item<int64_t>();
  if (most == 0) return none();
  const auto [ends, columns, values] =
      call_own<std::tuple<at::Tensor, at::Tensor, at::Tensor>, const at::Tensor&, const at::Tensor&, const at::Tensor&,
               const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, int64_t>(
          "torch_pjrt::sparse_matmul", left.ends, left.columns, left.values, right.ends, right.columns, right.values,
          b.size(1), rounded_size(most, INT64_MAX));
  const int64_t count = ends.select(0, -1).item<int64_t>(), kept = rounded_size(count, columns.size(0));
  const Parts parts{ends, columns.narrow(0, 0, kept).clone(), values.narrow(0, 0, kept).clone()};
  const at::Tensor rows = rows_and_columns(parts, c10::kSparseCsr).first;
  return at::_sparse_coo_tensor_unsafe(at::stack({rows, parts.plain}).narrow(1, 0, count),
                                       parts.values.narrow(0, 0, count), sizes, values.options().layout(c10::kSparse))
      ._coalesced_(true);
}

}  // namespace tpjrt::device
