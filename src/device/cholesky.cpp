// linalg_cholesky_ex. With check_errors its info is read at once, for the error of a matrix that is not positive-definite,
// as PyTorch's kernels do; a program can't raise.
#include <ATen/ops/_linalg_check_errors.h>
#include <torch/library.h>

#include "device/operator.h"
#include "device/recorder.h"

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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("linalg_cholesky_ex", torch::CppFunction::makeFromBoxedFunction<&cholesky_ex>());
  m.impl("linalg_cholesky_ex.L", torch::CppFunction::makeFromBoxedFunction<&cholesky_ex>());
}

}  // namespace
}  // namespace tpjrt::device
