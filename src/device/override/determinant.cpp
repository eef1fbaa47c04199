// _linalg_det and _linalg_slogdet, which return the factors for their gradients: those of A's transpose if A is real
// and contiguous (it is transposed for LAPACK), else those of A. The gradient looks at A's strides to tell which. A
// recorded operand is dense, whatever its strides were, so the kernel would always assume that it is contiguous. For
// other matrices it therefore gets the transpose, whose determinant is the same.
#include <torch/library.h>

#include "device/aten_call/operator.h"
#include "device/record/recorder.h"

namespace tpjrt::device {
namespace {

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
