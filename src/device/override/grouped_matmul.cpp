// aten::_grouped_mm (torch.nn.functional.grouped_mm): products of the groups of a matrix's rows, columns or inner
// dimension, which `offs` ends, each with its own matrix: the experts of a mixture.
//
// It runs above the recorder, in ops that have rules: its Meta kernel accepts bfloat16 only, and the lengths of
// groups are data, where XLA needs shapes. Each group is therefore multiplied with everything, and the parts of other
// groups are masked, as in XLA's own expansion of a ragged dot. Rows outside of all groups are 0.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>

namespace tpjrt::device {

namespace {

// Returns [groups, n]: whether position i of n is in the group.
at::Tensor membership(const at::Tensor& offs, int64_t n) {
  const at::Tensor position = at::arange(n, offs.options());
  const at::Tensor group = position.unsqueeze(1).ge(offs).sum(1);
  return group.eq(at::arange(offs.size(0), group.options()).unsqueeze(1));
}

at::Tensor only(const at::Tensor& chosen, const at::Tensor& x) { return at::where(chosen, x, 0); }

// Returns the rows of `rows` [n, k] times their group's matrix [groups, k, m].
at::Tensor rows_by_group(const at::Tensor& rows, const at::Tensor& matrices, const at::Tensor& offs) {
  const int64_t n = rows.size(0), k = rows.size(1), m = matrices.size(2), groups = matrices.size(0);
  const at::Tensor chosen = membership(offs, n);
  if (m <= k) return only(chosen.unsqueeze(2), at::matmul(rows, matrices)).sum(0);
  const at::Tensor apart = only(chosen.t().unsqueeze(2), rows.unsqueeze(1));  // [n, groups, k]: the smaller one
  return at::matmul(apart.reshape({n, groups * k}), matrices.reshape({groups * k, m}));
}

// Returns, for each group, the product of its columns of `a` [m, k] with its rows of `b` [k, n].
at::Tensor inner_by_group(const at::Tensor& a, const at::Tensor& b, const at::Tensor& offs) {
  const int64_t m = a.size(0), n = b.size(1), k = a.size(1), groups = offs.size(0);
  const at::Tensor chosen = membership(offs, k);
  const at::Tensor any = chosen.any(0);  // other positions may have any value, including NaN
  if (m > n) return inner_by_group(b.t(), a.t(), offs).transpose(1, 2);
  const at::Tensor apart = only(chosen.unsqueeze(1), a);  // [groups, m, k]
  return at::matmul(apart.reshape({groups * m, k}), only(any.unsqueeze(1), b)).reshape({groups, m, n});
}

void check(const at::Tensor& self, const at::Tensor& mat2, const std::optional<at::Tensor>& offs,
           const std::optional<at::Tensor>& bias) {
  const auto floats = {c10::kBFloat16, c10::kHalf, c10::kFloat};
  TORCH_CHECK(std::find(floats.begin(), floats.end(), self.scalar_type()) != floats.end(),
              "Expected mat_a to be Float32, BFloat16 or Float16 matrix, got ", self.scalar_type());
  TORCH_CHECK(self.scalar_type() == mat2.scalar_type(), "Expected mat_a and mat_b of one dtype, got ",
              self.scalar_type(), " and ", mat2.scalar_type());
  TORCH_CHECK(self.dim() == 2 || self.dim() == 3, "mat_a has to be 2 or 3d");
  TORCH_CHECK(mat2.dim() == 2 || mat2.dim() == 3, "mat_b has to be 2 or 3d");
  TORCH_CHECK(self.size(-1) == mat2.size(-2), "contraction dimension of mat_a and mat_b must match");
  const bool grouped = self.dim() == 2 || mat2.dim() == 2;
  TORCH_CHECK(offs.has_value() == grouped,
              "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d");
  TORCH_CHECK(!bias || !bias->defined(), "Bias not supported yet");
  if (!grouped) {
    TORCH_CHECK(self.size(0) == mat2.size(0), "batched dimension has to match");
    return;
  }
  TORCH_CHECK(offs->dim() == 1, "offs has to be 1D");
  TORCH_CHECK(offs->scalar_type() == c10::kInt, "Offsets have to be int32");
  const at::Tensor& batched = self.dim() == 3 ? self : mat2;
  TORCH_CHECK(batched.dim() == 2 || offs->size(0) == batched.size(0), "matrix batch sizes have to match");
}

at::Tensor grouped_mm(const at::Tensor& self, const at::Tensor& mat2, const std::optional<at::Tensor>& offs,
                      const std::optional<at::Tensor>& bias, std::optional<at::ScalarType> out_dtype) {
  check(self, mat2, offs, bias);
  at::Tensor result;
  if (!offs) {
    result = at::matmul(self, mat2);
  } else if (self.dim() == 2 && mat2.dim() == 3) {
    result = rows_by_group(self, mat2, *offs);
  } else if (self.dim() == 3) {
    result = rows_by_group(mat2.t(), self.transpose(1, 2), *offs).t();
  } else {
    result = inner_by_group(self, mat2, *offs);
  }
  return result.contiguous().to(out_dtype.value_or(self.scalar_type()));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_grouped_mm", TORCH_FN(grouped_mm)); }

}  // namespace

}  // namespace tpjrt::device
