// aten::_to_dense of CSR and CSC matrices: torch_pjrt::sparse_to_dense, an op of indices and values, like the
// products (Note [Sparse products]).
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>

#include "device/sparse/sparse.h"
#include "device/sparse/under_cpu.h"

namespace tpjrt::device {

namespace {

at::Tensor to_dense_meta(const at::Tensor& /*compressed*/, const at::Tensor& /*plain*/, const at::Tensor& values,
                         c10::string_view /*layout*/, int64_t rows, int64_t columns) {
  return at::empty({rows, columns}, values.options());
}

at::Tensor to_dense_composite(const at::Tensor& compressed, const at::Tensor& plain, const at::Tensor& values,
                              c10::string_view layout, int64_t rows, int64_t columns) {
  const auto [row, column] = rows_and_columns({compressed, plain, {}}, layout_of(layout));
  return summed_at(flat_places(row, column, columns), values, rows * columns).reshape({rows, columns});
}

at::Tensor to_dense_on_cpu(const at::Tensor& compressed, const at::Tensor& plain, const at::Tensor& values,
                           c10::string_view layout, int64_t rows, int64_t columns) {
  const auto options = values.options().layout(layout_of(layout));
  return at::_sparse_compressed_tensor_unsafe(compressed.contiguous(), plain.contiguous(), values.contiguous(),
                                              {rows, columns}, options)
      .to_dense();
}

TORCH_LIBRARY_FRAGMENT(torch_pjrt, m) {
  m.def(
      "sparse_to_dense(Tensor compressed_indices, Tensor plain_indices, Tensor values, str layout, int rows, int "
      "columns) -> Tensor");
}
TORCH_LIBRARY_IMPL(torch_pjrt, Meta, m) { m.impl("sparse_to_dense", TORCH_FN(to_dense_meta)); }
TORCH_LIBRARY_IMPL(torch_pjrt, CPU, m) { m.impl("sparse_to_dense", TORCH_FN(to_dense_on_cpu)); }
TORCH_LIBRARY_IMPL(torch_pjrt, CompositeExplicitAutograd, m) {
  m.impl("sparse_to_dense", TORCH_FN(to_dense_composite));
}
TORCH_LIBRARY_IMPL(torch_pjrt, PrivateUse1, m) {
  m.impl("sparse_to_dense", torch::CppFunction::makeFromBoxedFunction<&record_whole>());
}

at::Tensor to_dense(const at::Tensor& self, std::optional<at::ScalarType> dtype, std::optional<bool> masked_grad) {
  const bool is_known = (self.layout() == c10::kSparseCsr || self.layout() == c10::kSparseCsc) && self.dim() == 2 &&
                        self.dense_dim() == 0 && self.numel() > 0 && !dtype;
  if (!is_known) {
    return shared_kernel<at::Tensor>(c10::DispatchKey::SparseCsrCPU, "aten::_to_dense", "", self, dtype, masked_grad);
  }
  const Parts parts = parts_of(self);
  return call_own<at::Tensor, const at::Tensor&, const at::Tensor&, const at::Tensor&, c10::string_view, int64_t,
                  int64_t>("torch_pjrt::sparse_to_dense", parts.compressed, parts.plain, parts.values,
                           name_of(self.layout()), self.size(0), self.size(1));
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) { m.impl("_to_dense", TORCH_FN(to_dense)); }

}  // namespace

}  // namespace tpjrt::device
