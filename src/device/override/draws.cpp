// Draws whose CPU kernels do something first. uniform_ of a complex tensor draws its real and imaginary parts, which
// PyTorch's Meta kernel refuses. random_ checks its bounds, and warns of bounds that the dtype can't hold exactly.
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/view_as_real.h>
#include <torch/library.h>

#include "device/aten_call/operator.h"
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

// Does nothing after PyTorch's check of the bounds.
template <typename>
struct DrawNothing {
  template <typename... Arguments>
  void operator()(Arguments&&... /*given*/) const {}
};

// Arguments: self, from, to, generator; or without `from`.
void random_between(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  const c10::IValue* arguments = stack->data() + (stack->size() - op.arguments.size());
  const bool has_from = op.arguments.size() == 4;
  at::Tensor self = arguments[0].toTensor();
  at::native::templates::random_from_to_impl<DrawNothing, at::Generator>(
      self, has_from ? arguments[1].toInt() : 0, arguments[has_from ? 2 : 1].toOptional<int64_t>(), std::nullopt);
  record(op, *stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("uniform_", torch::CppFunction::makeFromBoxedFunction<&uniform>());
  m.impl("random_.from", torch::CppFunction::makeFromBoxedFunction<&random_between>());
  m.impl("random_.to", torch::CppFunction::makeFromBoxedFunction<&random_between>());
}

}  // namespace
}  // namespace tpjrt::device
