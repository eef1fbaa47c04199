// torch_pjrt::sparse_mm and sparse_sampled_mm: products of matrices in a sparse layout, as ops of indices and values.
//
// Note [Sparse products]: a product with a sparse tensor is recorded as one op on the strided tensors of its parts,
// so that the program sees it whole. On the CPU its kernel calls PyTorch's, which is MKL's; elsewhere its composite
// kernel gathers rows, multiplies them, and sums them by segment.
#include <ATen/Context.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/ops/_convert_indices_from_coo_to_csr.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sparse_sampled_addmm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "device/record/recorder.h"
#include "device/sparse/sparse.h"

namespace tpjrt::device {
namespace {

bool is_by_column(c10::Layout layout) { return layout == c10::kSparseCsc || layout == c10::kSparseBsc; }

at::Tensor mm_meta(const at::Tensor& /*compressed*/, const at::Tensor& /*plain*/, const at::Tensor& values,
                   const at::Tensor& dense, c10::string_view /*layout*/, int64_t rows) {
  return at::empty({rows, dense.size(1)}, values.options());
}

at::Tensor mm_composite(const at::Tensor& compressed, const at::Tensor& plain, const at::Tensor& values,
                        const at::Tensor& dense, c10::string_view layout, int64_t rows) {
  const auto [row, column] = rows_and_columns({compressed, plain, {}}, layout_of(layout));
  const c10::ScalarType dtype = values.scalar_type();
  const c10::ScalarType wide = c10::isReducedFloatingType(dtype) ? c10::kFloat : dtype;
  if (values.dim() == 1) {
    const at::Tensor each = values.to(wide).unsqueeze(1).mul(dense.index_select(0, column).to(wide));
    return summed_at(row, each, rows).to(dtype);
  }
  const int64_t height = values.size(1), width = values.size(2), n = dense.size(1);
  const at::Tensor blocks = dense.reshape({dense.size(0) / width, width, n}).index_select(0, column);
  return summed_at(row, at::bmm(values, blocks), rows / height).reshape({rows, n});
}

void check_bounds(const at::Tensor& indices, int64_t size, const char* which) {
  if (indices.numel() == 0) return;
  const auto [least, most] = at::aminmax(indices);
  const int64_t low = least.item<int64_t>(), high = most.item<int64_t>();
  TORCH_CHECK(low >= 0 && high < size, "addmm: index out of ", which, " bound: ", low < 0 ? low : high,
              " not between 1 and ", size);
}

bool is_sorted(const at::Tensor& x) {
  const auto* data = x.const_data_ptr<int64_t>();
  return std::is_sorted(data, data + x.numel());
}

// Returns whether PyTorch's MKL product has this dtype.
bool is_fast(c10::ScalarType dtype) {
  return dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kComplexFloat || dtype == c10::kComplexDouble;
}

// Returns the elements' numbers sorted by row, and the start of each row: a counting sort, whose cost is mostly one
// pass over the elements.
std::pair<at::Tensor, at::Tensor> by_rows(const at::Tensor& row, int64_t rows) {
  at::Tensor ends = at::zeros({rows + 1}, row.options()), order = at::empty_like(row);
  const auto sort = [&]<class Index>(Index) {
    const auto* of = row.const_data_ptr<Index>();
    auto *end = ends.mutable_data_ptr<Index>(), *number = order.mutable_data_ptr<Index>();
    const int64_t n = row.numel();
    for (int64_t i = 0; i < n; ++i) ++end[of[i] + 1];
    std::partial_sum(end, end + rows + 1, end);
    std::vector<Index> next(end, end + rows);
    for (int64_t i = 0; i < n; ++i) number[next[static_cast<size_t>(of[i])]++] = static_cast<Index>(i);
  };
  row.scalar_type() == c10::kInt ? sort(int32_t{}) : sort(int64_t{});
  return {order, ends};
}

// Returns a compressed matrix of these parts without PyTorch's checks of sparse invariants, because an uncoalesced
// tensor has a place twice. Switching the checks off instead would race with the user's thread: the switch is the
// process's, and a graph runs in its own thread.
at::Tensor unchecked(const at::Tensor& compressed, const at::Tensor& plain, const at::Tensor& values,
                     at::IntArrayRef sizes, c10::Layout layout) {
  at::Tensor matrix = at::detail::make_tensor<at::SparseCsrTensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::SparseCsrCPU), values.device(), layout, values.dtype());
  static_cast<at::SparseCsrTensorImpl*>(matrix.unsafeGetTensorImpl())
      ->set_member_tensors(compressed, plain, values, sizes);
  return matrix;
}

// Computes out = sparse @ dense, whatever out held.
void multiply(const at::Tensor& sparse, const at::Tensor& dense, at::Tensor& out) {
  at::addmm_out(out, out, sparse, dense, /*beta=*/0, /*alpha=*/1);
}

void csr_mm(const at::Tensor& ends, const at::Tensor& column, const at::Tensor& values, const at::Tensor& dense,
            at::Tensor& out) {
  multiply(unchecked(ends, column, values.contiguous(), {ends.size(0) - 1, dense.size(0)}, c10::kSparseCsr), dense,
           out);
}

void unsorted_mm(const at::Tensor& row, const at::Tensor& column, const at::Tensor& values, const at::Tensor& dense,
                 at::Tensor& out) {
  const auto [order, ends] = by_rows(row, out.size(0));
  csr_mm(ends, column.index_select(0, order), values.index_select(0, order), dense, out);
}

// Multiplies COO by rows with MKL. PyTorch's kernel for COO handles one element after the other, in one thread.
void coo_mm_on_cpu(const at::Tensor& rows_given, const at::Tensor& columns_given, const at::Tensor& values,
                   const at::Tensor& dense, at::Tensor& out) {
  constexpr int64_t kFewElements = 1 << 14;
  const int64_t rows = out.size(0);
  if (!at::hasMKL() || !is_fast(values.scalar_type()) || values.numel() * dense.size(1) < kFewElements) {
    const at::Tensor indices = at::stack({rows_given, columns_given});
    const auto options = values.options().layout(c10::kSparse);
    out.copy_(at::mm(at::_sparse_coo_tensor_unsafe(indices, values, {rows, dense.size(0)}, options), dense));
    return;
  }
  const at::Tensor row = rows_given.contiguous(), column = columns_given.contiguous();
  check_bounds(row, rows, "row");
  check_bounds(column, dense.size(0), "column");
  if (!is_sorted(row)) return unsorted_mm(row, column, values, dense, out);
  csr_mm(at::_convert_indices_from_coo_to_csr(row, rows), column, values, dense, out);
}

at::Tensor& mm_out_on_cpu(const at::Tensor& compressed, const at::Tensor& plain, const at::Tensor& values,
                          const at::Tensor& dense, c10::string_view layout, int64_t rows, at::Tensor& out) {
  const c10::Layout kind = layout_of(layout);
  const at::Tensor ends = compressed.contiguous(), inner = plain.contiguous();
  if (kind == c10::kSparse) {
    coo_mm_on_cpu(compressed, plain, values, dense, out);
  } else if (kind == c10::kSparseCsc && plain.numel() > 0) {  // PyTorch would sort it by rows in ops each time
    const at::Tensor indices = at::_convert_indices_from_csr_to_coo(ends, inner, ends.scalar_type() == c10::kInt);
    check_bounds(inner, rows, "row");
    unsorted_mm(inner, indices.select(0, 0), values, dense, out);
  } else {
    multiply(unchecked(ends, inner, values.contiguous(), {rows, dense.size(0)}, kind), dense, out);
  }
  return out;
}

at::Tensor mm_on_cpu(const at::Tensor& compressed, const at::Tensor& plain, const at::Tensor& values,
                     const at::Tensor& dense, c10::string_view layout, int64_t rows) {
  at::Tensor out = at::empty({rows, dense.size(1)}, values.options());
  return mm_out_on_cpu(compressed, plain, values, dense, layout, rows, out);
}

// b, of (columns, k), is the second matrix transposed: PyTorch's kernel reads its rows, and a gradient's matrix has
// that layout.
at::Tensor sampled_meta(const at::Tensor& /*compressed*/, const at::Tensor& plain, const at::Tensor& a,
                        const at::Tensor& /*b*/, c10::string_view /*layout*/) {
  return at::empty({plain.size(0)}, a.options());
}

at::Tensor sampled_composite(const at::Tensor& compressed, const at::Tensor& plain, const at::Tensor& a,
                             const at::Tensor& b, c10::string_view layout) {
  const auto [row, column] = rows_and_columns({compressed, plain, {}}, layout_of(layout));
  const c10::ScalarType dtype = a.scalar_type();
  const c10::ScalarType wide = c10::isReducedFloatingType(dtype) ? c10::kFloat : dtype;
  const at::Tensor left = a.index_select(0, row).to(wide), right = b.index_select(0, column).to(wide);
  return left.mul(right).sum(1).to(dtype);
}

// PyTorch's kernel, with one thread for each row. It adds in place, so it copies no indices.
void sampled_by_rows(const at::Tensor& ends, const at::Tensor& column, const at::Tensor& a, const at::Tensor& b,
                     const at::Tensor& out) {
  at::Tensor there = unchecked(ends, column, out.zero_(), {a.size(0), b.size(0)}, c10::kSparseCsr);
  at::sparse_sampled_addmm_out(there, there, a, b.t());
}

void sampled_coo(const at::Tensor& row, const at::Tensor& column, const at::Tensor& a, const at::Tensor& b,
                 const at::Tensor& out) {
  check_bounds(row, a.size(0), "row");
  check_bounds(column, b.size(0), "column");
  if (is_sorted(row)) {
    return sampled_by_rows(at::_convert_indices_from_coo_to_csr(row, a.size(0)), column, a, b, out);
  }
  const auto [order, ends] = by_rows(row, a.size(0));
  const at::Tensor sorted = at::empty_like(out);
  sampled_by_rows(ends, column.index_select(0, order), a, b, sorted);
  out.index_copy_(0, order.to(c10::kLong), sorted);
}

at::Tensor& sampled_out_on_cpu(const at::Tensor& compressed, const at::Tensor& plain, const at::Tensor& a,
                               const at::Tensor& b, c10::string_view layout, at::Tensor& out) {
  const c10::Layout kind = layout_of(layout);
  const bool has_kernel = is_fast(a.scalar_type()) && !c10::isComplexType(a.scalar_type()) && plain.numel() > 0 &&
                          kind != c10::kSparseBsr && kind != c10::kSparseBsc;
  if (!has_kernel) return out.copy_(sampled_composite(compressed, plain, a, b, layout));
  const at::Tensor ends = compressed.contiguous(), inner = plain.contiguous();
  const bool is_csr = kind == c10::kSparseCsr;
  if (kind == c10::kSparse) {
    sampled_coo(ends, inner, a, b, out);
  } else if (is_csr) {
    check_bounds(inner, b.size(0), "column");
    sampled_by_rows(ends, inner, a, b, out);
  } else {
    check_bounds(inner, a.size(0), "row");
    sampled_by_rows(ends, inner, b, a, out);  // (a b)ᵀ = bᵀ aᵀ
  }
  return out;
}

at::Tensor sampled_on_cpu(const at::Tensor& compressed, const at::Tensor& plain, const at::Tensor& a,
                          const at::Tensor& b, c10::string_view layout) {
  at::Tensor out = at::empty({plain.size(0)}, a.options());
  return sampled_out_on_cpu(compressed, plain, a, b, layout, out);
}

TORCH_LIBRARY_FRAGMENT(torch_pjrt, m) {
  m.def(
      "sparse_mm(Tensor compressed_indices, Tensor plain_indices, Tensor values, Tensor dense, str layout, int rows) "
      "-> Tensor");
  m.def(
      "sparse_mm.out(Tensor compressed_indices, Tensor plain_indices, Tensor values, Tensor dense, str layout, int "
      "rows, *, Tensor(a!) out) -> Tensor(a!)");
  m.def(
      "sparse_sampled_mm(Tensor compressed_indices, Tensor plain_indices, Tensor mat1, Tensor mat2_t, str layout) -> "
      "Tensor");
  m.def(
      "sparse_sampled_mm.out(Tensor compressed_indices, Tensor plain_indices, Tensor mat1, Tensor mat2_t, str layout, "
      "*, "
      "Tensor(a!) out) -> Tensor(a!)");
}
TORCH_LIBRARY_IMPL(torch_pjrt, Meta, m) {
  m.impl("sparse_mm", TORCH_FN(mm_meta));
  m.impl("sparse_sampled_mm", TORCH_FN(sampled_meta));
}
TORCH_LIBRARY_IMPL(torch_pjrt, CPU, m) {
  m.impl("sparse_mm", TORCH_FN(mm_on_cpu));
  m.impl("sparse_mm.out", TORCH_FN(mm_out_on_cpu));
  m.impl("sparse_sampled_mm", TORCH_FN(sampled_on_cpu));
  m.impl("sparse_sampled_mm.out", TORCH_FN(sampled_out_on_cpu));
}
TORCH_LIBRARY_IMPL(torch_pjrt, CompositeExplicitAutograd, m) {
  m.impl("sparse_mm", TORCH_FN(mm_composite));
  m.impl("sparse_sampled_mm", TORCH_FN(sampled_composite));
}
TORCH_LIBRARY_IMPL(torch_pjrt, PrivateUse1, m) {
  m.impl("sparse_mm", torch::CppFunction::makeFromBoxedFunction<&record_whole>());
  m.impl("sparse_sampled_mm", torch::CppFunction::makeFromBoxedFunction<&record_whole>());
}

}  // namespace

const char* name_of(c10::Layout layout) {
  switch (layout) {
    case c10::kSparse: return "coo";
    case c10::kSparseCsr: return "csr";
    case c10::kSparseCsc: return "csc";
    case c10::kSparseBsr: return "bsr";
    default: return "bsc";
  }
}

c10::Layout layout_of(c10::string_view name) {
  if (name == "coo") return c10::kSparse;
  if (name == "csr") return c10::kSparseCsr;
  if (name == "csc") return c10::kSparseCsc;
  if (name == "bsr") return c10::kSparseBsr;
  TORCH_CHECK(name == "bsc", "[torch_pjrt::sparse_mm] layout is '", name, "'; one of coo, csr, csc, bsr, bsc is meant");
  return c10::kSparseBsc;
}

void record_whole(const c10::OperatorHandle& op, torch::jit::Stack* stack) { record(Operator::of(op), *stack); }

Parts parts_of(const at::Tensor& sparse) {
  switch (sparse.layout()) {
    case c10::kSparse: return {sparse._indices().select(0, 0), sparse._indices().select(0, 1), sparse._values()};
    case c10::kSparseCsr:
    case c10::kSparseBsr: return {sparse.crow_indices(), sparse.col_indices(), sparse.values()};
    default: return {sparse.ccol_indices(), sparse.row_indices(), sparse.values()};
  }
}

std::pair<at::Tensor, at::Tensor> rows_and_columns(const Parts& parts, c10::Layout layout) {
  if (layout == c10::kSparse) return {parts.compressed, parts.plain};
  const at::Tensor each = at::arange(parts.plain.size(0), parts.compressed.options());
  const at::Tensor expanded =
      at::searchsorted(parts.compressed.contiguous(), each, /*out_int32=*/false, /*right=*/true).sub(1);
  return is_by_column(layout) ? std::pair{parts.plain, expanded} : std::pair{expanded, parts.plain};
}

at::Tensor sparse_mm(const Parts& parts, const at::Tensor& dense, c10::Layout layout, int64_t rows) {
  return call_own<at::Tensor, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                  c10::string_view, int64_t>("torch_pjrt::sparse_mm", parts.compressed, parts.plain, parts.values,
                                             dense, name_of(layout), rows);
}

at::Tensor sparse_sampled_mm(const Parts& parts, const at::Tensor& mat1, const at::Tensor& mat2, c10::Layout layout) {
  return call_own<at::Tensor, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                  c10::string_view>("torch_pjrt::sparse_sampled_mm", parts.compressed, parts.plain, mat1, mat2.t(),
                                    name_of(layout));
}

}  // namespace tpjrt::device
