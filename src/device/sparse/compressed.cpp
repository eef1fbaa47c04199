// Sums of compressed matrices: of two, and of a CSR matrix along its dimensions. The number of a sum's elements is
// data, and is read, unless both operands have their elements at the same places.
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <array>
#include <optional>

#include "device/sparse/sparse.h"
#include "device/sparse/under_cpu.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

bool is_csr(const at::Tensor& x) {
  return is_pjrt(x) && x.layout() == c10::kSparseCsr && x.dim() == 2 && x.dense_dim() == 0;
}

// Returns whether MKL has this dtype.
bool has_sum(c10::ScalarType dtype) {
  return dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kComplexFloat || dtype == c10::kComplexDouble;
}

at::Tensor sum_of_two(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  const Parts one = parts_of(self), two = parts_of(other);
  const at::Tensor scaled = alpha.equal(1) ? two.values : two.values.mul(alpha);
  if (are_same(one.compressed, two.compressed) && are_same(one.plain, two.plain)) {
    return at::_sparse_compressed_tensor_unsafe(one.compressed.clone(), one.plain.clone(), one.values.add(scaled),
                                                self.sizes(), self.options());
  }
  const at::Tensor indices = at::cat({coo_of(self)._indices(), coo_of(other)._indices()}, 1);
  const at::Tensor all = at::_sparse_coo_tensor_unsafe(indices, at::cat({one.values, scaled}), self.sizes(),
                                                       self.options().layout(c10::kSparse));
  return csr_of(all.coalesce(), one.plain.scalar_type());
}

// aten::add.out
at::Tensor& add_compressed_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
                               at::Tensor& out) {
  const c10::ScalarType dtype = self.scalar_type();
  if (is_csr(self) && is_csr(other) && is_csr(out) && self.sizes() == other.sizes() && self.numel() > 0 &&
      has_sum(dtype) && other.scalar_type() == dtype && out.scalar_type() == dtype &&
      self.col_indices().scalar_type() == other.col_indices().scalar_type()) {
    return give(sum_of_two(self, other, alpha), out);
  }
  const bool is_compressed = other.layout() == c10::kSparseCsr || other.layout() == c10::kSparseCsc;
  if (is_pjrt(self) && is_pjrt(other) && is_pjrt(out) && self.layout() == c10::kStrided && is_compressed &&
      out.layout() == c10::kStrided && other.dim() == 2 && other.dense_dim() == 0 && self.sizes() == other.sizes()) {
    return at::add_out(out, self, coo_of(other), alpha);
  }
  out = on_host<at::Tensor>("aten::add", "out", self, other, alpha, out);
  return out;
}

// aten::_sparse_csr_sum.dim_dtype: (1, columns), (rows, 1) or (1, 1), with elements where there are elements to sum.
at::Tensor sum_of_dims(const at::Tensor& self, c10::IntArrayRef dims, bool keepdim,
                       std::optional<at::ScalarType> dtype) {
  std::array<bool, 2> is_summed{};
  bool is_known = is_csr(self) && keepdim && self._nnz() > 0 && !dims.empty();
  for (const int64_t dim : dims) {
    is_known = is_known && dim >= -2 && dim < 2 && !is_summed[static_cast<size_t>(dim & 1)];
    if (is_known) is_summed[static_cast<size_t>(dim & 1)] = true;
  }
  if (!is_known) return on_host<at::Tensor>("aten::_sparse_csr_sum", "dim_dtype", self, dims, keepdim, dtype);
  const bool is_whole = c10::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  const c10::ScalarType wanted = dtype ? *dtype : is_whole ? c10::kLong : self.scalar_type();
  const at::Tensor matrix = coo_of(self), rows = matrix._indices().select(0, 0),
                   columns = matrix._indices().select(0, 1);
  const at::Tensor indices = at::stack({is_summed[0] ? at::zeros_like(rows) : rows,  //
                                        is_summed[1] ? at::zeros_like(columns) : columns});
  const std::array<int64_t, 2> sizes{is_summed[0] ? 1 : self.size(0), is_summed[1] ? 1 : self.size(1)};
  const at::Tensor values = matrix._values().to(wanted);
  const at::Tensor all = at::_sparse_coo_tensor_unsafe(indices, values, sizes, values.options().layout(c10::kSparse));
  return csr_of(all.coalesce(), self.col_indices().scalar_type());
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("add.out", TORCH_FN(add_compressed_out));
  m.impl("_sparse_csr_sum.dim_dtype", TORCH_FN(sum_of_dims));
}

}  // namespace

}  // namespace tpjrt::device
