// aten::native_batch_norm.out: evaluation saves no statistics, and the CPU's kernel leaves their tensors unchanged,
// whatever their sizes. This kernel runs the functional op and copies its results.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/native_batch_norm.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

namespace tpjrt::device {

namespace {

void check_dtype(const at::Tensor& out, const at::Tensor& result) {
  TORCH_CHECK(out.scalar_type() == result.scalar_type(), "expected scalar type ", result.scalar_type(), " but found ",
              out.scalar_type());
}

void put(at::Tensor& out, const at::Tensor& result) {
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
}

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&> native_batch_norm_out(
    const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var, bool training,
    double momentum, double eps, at::Tensor& out, at::Tensor& save_mean, at::Tensor& save_invstd) {
  const auto [y, mean, invstd] =
      at::native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
  check_dtype(out, y);
  check_dtype(save_mean, mean);
  check_dtype(save_invstd, invstd);
  put(out, y);
  if (training) {
    put(save_mean, mean);
    put(save_invstd, invstd);
  }
  return {out, save_mean, save_invstd};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("native_batch_norm.out", TORCH_FN(native_batch_norm_out)); }

}  // namespace

}  // namespace tpjrt::device
