// aten::_convert_indices_from_coo_to_csr and its inverse for indices with gaps: the CPU's kernel, which interpreted
// calls and programs use, reads them as if they were contiguous.
#include <torch/library.h>

#include "device/aten_call/operator.h"
#include "device/record/recorder.h"

namespace tpjrt::device {

namespace {

void record_contiguous(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  for (size_t i = first; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor() && !op.schema().arguments()[i - first].is_out()) value = value.toTensor().contiguous();
  }
  record(Operator::of(op), *stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_convert_indices_from_coo_to_csr", torch::CppFunction::makeFromBoxedFunction<&record_contiguous>());
  m.impl("_convert_indices_from_coo_to_csr.out", torch::CppFunction::makeFromBoxedFunction<&record_contiguous>());
  m.impl("_convert_indices_from_csr_to_coo", torch::CppFunction::makeFromBoxedFunction<&record_contiguous>());
  m.impl("_convert_indices_from_csr_to_coo.out", torch::CppFunction::makeFromBoxedFunction<&record_contiguous>());
}

}  // namespace

}  // namespace tpjrt::device
