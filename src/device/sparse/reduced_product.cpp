// aten::_sparse_mm_reduce_impl and its backward: torch.sparse.mm(csr, dense, reduce), as rows gathered and reduced by
// segment.
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "device/services/python_hooks.h"
#include "device/sparse/sparse.h"
#include "device/sparse/under_cpu.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;

bool is_csr_times_strided(const at::Tensor& self, const at::Tensor& other, c10::string_view reduce) {
  const bool is_known = reduce == "sum" || reduce == "mean" || reduce == "amax" || reduce == "amin";
  return is_known && is_pjrt(self) && is_pjrt(other) && self.layout() == c10::kSparseCsr && self.dim() == 2 &&
         self.dense_dim() == 0 && other.layout() == c10::kStrided && other.dim() == 2 &&
         self.size(1) == other.size(0) && self.scalar_type() == other.scalar_type() &&
         (self.scalar_type() == c10::kFloat || self.scalar_type() == c10::kDouble);
}

// Returns the number of elements in each row, at least 1: (rows, 1).
at::Tensor lengths(const at::Tensor& ends, const at::TensorOptions& options) {
  return ends.diff().clamp_min(1).unsqueeze(1).to(options);
}

// Maps the two names that the CPU accepts to one.
c10::string_view same_name(c10::string_view reduce) {
  return reduce == "max" ? "amax" : reduce == "min" ? "amin" : reduce;
}

Pair reduced(const at::Tensor& self, const at::Tensor& other, c10::string_view reduce) {
  reduce = same_name(reduce);
  if (!is_csr_times_strided(self, other, reduce)) {
    return on_host_both("aten::_sparse_mm_reduce_impl", self, other, reduce);
  }
  const Parts parts = parts_of(self);
  const at::Tensor none = at::empty({0}, parts.plain.options());
  if (reduce == "sum" || reduce == "mean") {
    const at::Tensor sum = sparse_mm(parts, other, self.layout(), self.size(0));
    return {reduce == "sum" ? sum : sum.div(lengths(parts.compressed, sum.options())), none};
  }
  const auto [row, column] = rows_and_columns(parts, self.layout());
  const at::Tensor each = parts.values.unsqueeze(1).mul(other.index_select(0, column));
  const at::Tensor start = at::zeros({self.size(0), other.size(1)}, other.options());
  const Unheard of_beta;
  const at::Tensor result = start.index_reduce(0, row, each, reduce, /*include_self=*/false);
  const int64_t nnz = parts.plain.size(0);
  const at::Tensor number = at::arange(nnz, row.options()).unsqueeze(1);
  const at::Tensor first = at::where(each.eq(result.index_select(0, row)), number, nnz);
  const at::Tensor from = at::full({self.size(0), other.size(1)}, nnz, row.options());
  return {result, from.index_reduce(0, row, first, "amin")};
}

Pair reduced_backward(const at::Tensor& self, const at::Tensor& gradient, const at::Tensor& other,
                      c10::string_view reduce, const at::Tensor& arguments, std::array<bool, 2> wanted) {
  reduce = same_name(reduce);
  if (!is_csr_times_strided(self, other, reduce)) {
    return on_host_both("aten::_sparse_mm_reduce_impl_backward", self, gradient, other, reduce, arguments, wanted);
  }
  const Parts parts = parts_of(self);
  const auto [row, column] = rows_and_columns(parts, self.layout());
  at::Tensor each = gradient;
  if (reduce == "mean") each = each.div(lengths(parts.compressed, each.options()));
  each = each.index_select(0, row);
  if (reduce == "amax" || reduce == "amin") {
    const at::Tensor number = at::arange(parts.plain.size(0), row.options()).unsqueeze(1);
    each = at::where(arguments.index_select(0, row).eq(number), each, 0.0);
  }
  at::Tensor of_self, of_other;
  if (wanted[0]) {
    const at::Tensor values = each.mul(other.index_select(0, column)).sum(1);
    of_self = at::_sparse_compressed_tensor_unsafe(parts.compressed.clone(), parts.plain.clone(), values, self.sizes(),
                                                   values.options().layout(self.layout()));
  }
  if (wanted[1]) of_other = summed_at(column, each.mul(parts.values.unsqueeze(1)), self.size(1));
  return {of_self, of_other};
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("_sparse_mm_reduce_impl", TORCH_FN(reduced));
  m.impl("_sparse_mm_reduce_impl_backward", TORCH_FN(reduced_backward));
}

}  // namespace

}  // namespace tpjrt::device
