// put, put_: if an index occurs several times, the value that stays is not determined, which
// torch.use_deterministic_algorithms must be notified. The CPU's kernel notifies it; a Meta kernel doesn't.
#include <ATen/Context.h>
#include <torch/library.h>

#include "device/aten_call/operator.h"
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
