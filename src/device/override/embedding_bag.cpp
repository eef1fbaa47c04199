// aten::_embedding_bag_backward with sparse=True: returns a COO tensor of the rows that were looked up, by PyTorch's
// own composite. A strided gradient is recorded.
#include <ATen/ops/_embedding_bag_sparse_backward.h>
#include <torch/library.h>

#include <utility>

#include "device/aten_call/operator.h"
#include "device/record/recorder.h"

namespace tpjrt::device {

namespace {

// Arguments: grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode,
// sparse, per_sample_weights, padding_idx
void embedding_bag_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto argument = [&](size_t i) -> c10::IValue& {
    return (*stack)[stack->size() - op.schema().arguments().size() + i];
  };
  if (!argument(9).toBool()) return record(Operator::of(op), *stack);
  at::Tensor gradient = at::_embedding_bag_sparse_backward(
      argument(0).toTensor(), argument(1).toTensor(), argument(2).toTensor(), argument(3).toTensor(),
      argument(4).toTensor(), argument(6).toInt(), argument(7).toBool(), argument(8).toInt(),
      argument(10).toOptional<at::Tensor>(), argument(11).toInt());
  stack->resize(stack->size() - op.schema().arguments().size());
  stack->emplace_back(std::move(gradient));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_embedding_bag_backward", torch::CppFunction::makeFromBoxedFunction<&embedding_bag_backward>());
}

}  // namespace

}  // namespace tpjrt::device
