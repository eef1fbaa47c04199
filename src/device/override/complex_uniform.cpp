// uniform_ of a complex tensor draws its real and imaginary parts, as the CPU does; PyTorch's Meta kernel refuses it.
#include <ATen/ops/view_as_real.h>
#include <torch/library.h>

#include "device/call/operator.h"
#include "device/record/recorder.h"

namespace tpjrt::device {
namespace {

void uniform(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  const c10::IValue* arguments = stack->data() + (stack->size() - op.arguments.size());
  const at::Tensor self = arguments[0].toTensor();
  if (C10_LIKELY(!self.is_complex())) return record(op, *stack);
  at::view_as_real(self).uniform_(arguments[1].toDouble(), arguments[2].toDouble(),
                                  arguments[3].toOptional<at::Generator>());
  torch::jit::drop(*stack, op.arguments.size());
  stack->emplace_back(self);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("uniform_", torch::CppFunction::makeFromBoxedFunction<&uniform>()); }

}  // namespace
}  // namespace tpjrt::device
