// masked_fill_, index_fill_ and index_put_ of one value into an expanded tensor, whose elements share memory: deprecated,
// and done by the CPU with a warning, where every other write of the kind is an error. Memory is filled if any of the
// elements that share it would be.
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/any.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "device/operator.h"
#include "device/recorder.h"

namespace tpjrt::device {
namespace {

bool is_expanded(const at::Tensor& self) { return at::has_internal_overlap(self) == at::MemOverlap::Yes; }

void warn(const char* op, const char* index) {
  TORCH_WARN(
      "Use of ", op,
      " on expanded tensors is deprecated. Please clone() the tensor before performing this operation. This also "
      "applies to advanced indexing e.g. ",
      index);
}

// `self` and a mask of its sizes, without the dimensions that `self` was expanded by.
void narrow_to_memory(at::Tensor& self, at::Tensor& mask) {
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    if (self.stride(dim) != 0 || self.size(dim) < 2) continue;
    self = self.narrow(dim, 0, 1);
    mask = mask.any(dim, /*keepdim=*/true);
  }
}

at::Tensor nothing_of(const at::Tensor& self) { return at::zeros(self.sizes(), self.options().dtype(at::kBool)); }

void masked_fill_(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  c10::IValue* arguments = stack->data() + (stack->size() - op.arguments.size());
  const at::Tensor self = arguments[0].toTensor();
  at::Tensor mask = arguments[1].toTensor();
  if (C10_LIKELY(!is_expanded(self)) || mask.scalar_type() != at::kBool) return record(op, *stack);
  warn("masked_fill_", "tensor[mask] = scalar");
  mask = mask.expand_as(self);
  at::Tensor memory = self;
  narrow_to_memory(memory, mask);
  arguments[0] = memory;
  arguments[1] = mask;
  record(op, *stack);
  stack->back() = self;
}

void index_fill_(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  c10::IValue* arguments = stack->data() + (stack->size() - op.arguments.size());
  const at::Tensor self = arguments[0].toTensor();
  if (C10_LIKELY(!is_expanded(self))) return record(op, *stack);
  warn("index_fill_", "tensor[mask] = scalar");
  at::Tensor mask = nothing_of(self).index_fill_(arguments[1].toInt(), arguments[2].toTensor(), 1);
  at::Tensor memory = self;
  narrow_to_memory(memory, mask);
  if (arguments[3].isScalar()) {
    memory.masked_fill_(mask, arguments[3].toScalar());
  } else {
    memory.masked_fill_(mask, arguments[3].toTensor());
  }
  torch::jit::drop(*stack, op.arguments.size());
  stack->emplace_back(self);
}

void index_put_(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  c10::IValue* arguments = stack->data() + (stack->size() - op.arguments.size());
  const at::Tensor self = arguments[0].toTensor();
  const at::Tensor values = arguments[2].toTensor();
  // Of several values, which one is written last is for the order of the CPU's threads to decide.
  if (C10_LIKELY(!is_expanded(self)) || values.numel() != 1 || arguments[3].toBool()) return record(op, *stack);
  warn("index_put_", "tensor[indices] = tensor");
  at::Tensor mask =
      nothing_of(self).index_put_(arguments[1].toOptionalTensorList(), at::ones({}, self.options().dtype(at::kBool)));
  at::Tensor memory = self;
  narrow_to_memory(memory, mask);
  memory.masked_fill_(mask, values.squeeze());
  torch::jit::drop(*stack, op.arguments.size());
  stack->emplace_back(self);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("masked_fill_.Scalar", torch::CppFunction::makeFromBoxedFunction<&masked_fill_>());
  m.impl("masked_fill_.Tensor", torch::CppFunction::makeFromBoxedFunction<&masked_fill_>());
  m.impl("index_fill_.int_Scalar", torch::CppFunction::makeFromBoxedFunction<&index_fill_>());
  m.impl("index_fill_.int_Tensor", torch::CppFunction::makeFromBoxedFunction<&index_fill_>());
  m.impl("index_put_", torch::CppFunction::makeFromBoxedFunction<&index_put_>());
  m.impl("_index_put_impl_", torch::CppFunction::makeFromBoxedFunction<&index_put_>());
}

}  // namespace
}  // namespace tpjrt::device
