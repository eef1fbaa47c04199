// put, put_: which of several values stays where an index comes more than once is not determined, and
// torch.use_deterministic_algorithms is told so. The CPU's kernel is what tells it; a Meta kernel doesn't.
#include <ATen/Context.h>
#include <torch/library.h>

#include "device/call/operator.h"
#include "device/record/recorder.h"

namespace tpjrt::device {
namespace {

void put(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const bool accumulates = stack->back().toBool();
  if (!accumulates) at::globalContext().alertNotDeterministic("put_");
  record(Operator::of(handle), *stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("put", torch::CppFunction::makeFromBoxedFunction<&put>());
  m.impl("put_", torch::CppFunction::makeFromBoxedFunction<&put>());
}

}  // namespace
}  // namespace tpjrt::device
