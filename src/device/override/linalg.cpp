// Factorizations whose kernels decide by more than their operands' values: Cholesky, and determinants.
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <torch/library.h>

#include "device/aten_call/operator.h"
#include "device/record/recorder.h"

namespace tpjrt::device {

namespace {

// linalg_cholesky_ex and cholesky. With check_errors the info is read immediately, like in PyTorch's kernels, for the
// error of a matrix that is not positive-definite; a program can't raise. cholesky always checks.

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

// _linalg_det and _linalg_slogdet, which return the factors for their gradients: those of A's transpose if A is real
// and contiguous (it is transposed for LAPACK), else those of A. The gradient looks at A's strides to tell which. A
// recorded operand is dense, whatever its strides were, so the kernel would always assume that it is contiguous. For
// other matrices it therefore gets the transpose, whose determinant is the same.
void determinant(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  c10::IValue& argument = (*stack)[stack->size() - op.arguments.size()];
  const at::Tensor& matrix = argument.toTensor();
  if (matrix.dim() >= 2 && matrix.is_floating_point() && !matrix.is_contiguous()) argument = matrix.mT().contiguous();
  record(op, *stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_linalg_det", torch::CppFunction::makeFromBoxedFunction<&determinant>());
  m.impl("_linalg_slogdet", torch::CppFunction::makeFromBoxedFunction<&determinant>());
}

}  // namespace

}  // namespace tpjrt::device
