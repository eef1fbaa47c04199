// Zeros that an optimizer makes in its first step become data immediately. Otherwise that step would have another graph
// than all following ones, and half of the time until a training runs would go to a program that runs once.
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include "device/aten_call/meta.h"
#include "device/record/recorder.h"
#include "device/services/engine.h"
#include "device/services/modes.h"
#include "device/start/optimizer_step.h"
#include "device/tensor/access.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

// Returns whether the memory was not written before the step and is all the tensor's. Within the step,
// torch.use_deterministic_algorithms fills empty memory.
bool is_new(const at::Tensor& tensor) {
  LazyStorage* storage = storage_of(tensor);
  std::lock_guard lock(graph::graph_lock());
  const graph::Value& value = storage->slot.value();
  return (!value || in_optimizer_step(*value.node)) && tensor.is_non_overlapping_and_dense() &&
         tensor.nbytes() == storage->nbytes();
}

void zero(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const at::Tensor& self = stack->back().toTensor();
  if (!makes_optimizer_state() || outlining() || tracing() || !is_pjrt(self) || !is_new(self)) {
    return record(Operator::of(handle), *stack);
  }
  const auto options = at::TensorOptions(c10::kCPU).dtype(self.dtype());
  const at::Tensor zeros = at::empty_strided(self.sizes(), self.strides(), options).zero_();
  graph::Value leaf = engine().upload(zeros, self.device().index(), /*owned=*/true);
  std::lock_guard lock(graph::graph_lock());
  write(self, std::move(leaf));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("zero_", torch::CppFunction::makeFromBoxedFunction<&zero>()); }

}  // namespace
}  // namespace tpjrt::device
