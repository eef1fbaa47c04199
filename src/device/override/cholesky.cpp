// linalg_cholesky_ex and cholesky. With check_errors the info is read immediately, like in PyTorch's kernels, for the
// error of a matrix that is not positive-definite; a program can't raise. cholesky always checks.
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <torch/library.h>

#include "device/aten_call/operator.h"
#include "device/record/recorder.h"

namespace tpjrt::device {
namespace {

void cholesky_ex(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  c10::IValue* arguments = stack->data() + (stack->size() - op.arguments.size());
  const bool is_matrix = arguments[0].toTensor().dim() == 2;
  const bool check_errors = arguments[2].toBool();
  arguments[2] = false;
  record(op, *stack);
  if (check_errors) at::_linalg_check_errors(stack->back().toTensor(), "linalg.cholesky_ex", is_matrix);
}

at::Tensor checked_cholesky(const at::Tensor& self, bool upper) {
  auto [factor, info] = at::linalg_cholesky_ex(self, upper);
  at::_linalg_check_errors(info, "cholesky", self.dim() == 2);
  return factor;
}

at::Tensor& checked_cholesky_out(const at::Tensor& self, bool upper, at::Tensor& out) {
  at::native::checkLinalgCompatibleDtype("cholesky", out, self);
  const at::Tensor factor = checked_cholesky(self, upper);
  at::native::resize_output(out, factor.sizes());
  return out.copy_(factor);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cholesky", TORCH_FN(checked_cholesky));
  m.impl("cholesky.out", TORCH_FN(checked_cholesky_out));
  m.impl("linalg_cholesky_ex", torch::CppFunction::makeFromBoxedFunction<&cholesky_ex>());
  m.impl("linalg_cholesky_ex.L", torch::CppFunction::makeFromBoxedFunction<&cholesky_ex>());
}

}  // namespace
}  // namespace tpjrt::device
