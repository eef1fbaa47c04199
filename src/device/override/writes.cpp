// Writes that a Meta kernel alone doesn't describe: by index, to a part of a clone, and into expanded tensors.
#include <ATen/Context.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/select_scatter_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/slice_scatter_compositeexplicitautogradnonfunctional_dispatch.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "device/aten_call/operator.h"
#include "device/record/recorder.h"
#include "device/tensor/access.h"

namespace tpjrt::device {

namespace {

// put, put_: if an index occurs several times, the value that stays is not determined, which
// torch.use_deterministic_algorithms must be notified. The CPU's kernel notifies it; a Meta kernel doesn't.
void put(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const bool accumulates = stack->back().toBool();
  if (!accumulates) at::globalContext().alertNotDeterministic("put_");
  record(Operator::of(handle), *stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("put", torch::CppFunction::makeFromBoxedFunction<&put>());
  m.impl("put_", torch::CppFunction::makeFromBoxedFunction<&put>());
}

// slice_scatter and select_scatter of dense tensors: a clone, which shares the value, and a write to a part of it.
// PyTorch's kernels clone the memory as a flat tensor instead, which hides the written part (graph/type.h).

// Returns the result, or undefined where PyTorch's kernel must run: for memory with gaps, and for calls that it
// refuses.
template <typename Part>
at::Tensor written(const at::Tensor& self, const at::Tensor& src, const Part& part_of) {
  if (!self.is_non_overlapping_and_dense()) return {};
  at::Tensor result = self.clone();
  const at::Tensor part = part_of(result);
  if (part.sizes() != src.sizes()) return {};
  part.copy_(src);
  return result;
}

at::Tensor slice_scatter(const at::Tensor& self, const at::Tensor& src, int64_t dim, std::optional<int64_t> start,
                         std::optional<int64_t> end, int64_t step) {
  const auto part = [&](const at::Tensor& whole) { return whole.slice(dim, start, end, step); };
  if (at::Tensor result = written(self, src, part); result.defined()) return result;
  return at::compositeexplicitautogradnonfunctional::slice_scatter(self, src, dim, start, end, step);
}

at::Tensor select_scatter(const at::Tensor& self, const at::Tensor& src, int64_t dim, int64_t index) {
  const auto part = [&](const at::Tensor& whole) { return whole.select(dim, index); };
  if (at::Tensor result = written(self, src, part); result.defined()) return result;
  return at::compositeexplicitautogradnonfunctional::select_scatter(self, src, dim, index);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("slice_scatter", &slice_scatter);
  m.impl("select_scatter", &select_scatter);
}

// masked_fill_, index_fill_ and index_put_ into an expanded tensor, whose elements share memory. PyTorch deprecated
// them, but the CPU runs them with a warning, where every other write of the kind is an error. Memory is filled if
// any element that shares it would be, gets the sum of the additions to its elements, and keeps the last of several
// values.

bool is_expanded(const at::Tensor& self) { return at::has_internal_overlap(self) == at::MemOverlap::Yes; }

void warn(const char* op, const char* index) {
  TORCH_WARN(
      "Use of ", op,
      " on expanded tensors is deprecated. Please clone() the tensor before performing this operation. This also "
      "applies to advanced indexing e.g. ",
      index);
}

at::Tensor nothing_of(const at::Tensor& self) { return at::zeros(self.sizes(), self.options().dtype(at::kBool)); }

void give_back(const Operator& op, torch::jit::Stack& stack, const at::Tensor& self) {
  torch::jit::drop(stack, op.arguments.size());
  stack.emplace_back(self);
}

// Runs the call: fills the memory of the elements that a mask of the tensor's sizes chooses. `value`: a Scalar or a
// tensor.
void fill(const Operator& op, torch::jit::Stack& stack, const at::Tensor& self, at::Tensor mask,
          const c10::IValue& value) {
  const std::vector<int64_t> shared = shared_dims(self);
  at::Tensor memory = one_of(self, shared);
  for (const int64_t dim : shared) mask = mask.any(dim, /*keepdim=*/true);
  if (value.isScalar()) {
    memory.masked_fill_(mask, value.toScalar());
  } else {
    memory.masked_fill_(mask, value.toTensor());
  }
  give_back(op, stack, self);
}

// Runs the call: adds to memory what index_put_ adds to the elements that share it.
void accumulate(const Operator& op, torch::jit::Stack& stack, const at::Tensor& self, const c10::IValue& indices,
                const at::Tensor& values) {
  const std::vector<int64_t> shared = shared_dims(self);
  at::Tensor memory = one_of(self, shared);
  const at::Tensor zeros = at::zeros(self.sizes(), self.options());
  const at::Tensor added = zeros.index_put(indices.toOptionalTensorList(), values, /*accumulate=*/true);
  if (self.scalar_type() == at::kBool) {
    memory.logical_or_(added.any(shared, /*keepdim=*/true));
  } else {
    memory.add_(added.sum(shared, /*keepdim=*/true, self.scalar_type()));
  }
  give_back(op, stack, self);
}

// Runs the call: writes each value to the memory of its element. The last one stays, where the CPU's threads leave
// the choice open.
void put(const Operator& op, torch::jit::Stack& stack, const at::Tensor& self, const c10::IValue& indices,
         const at::Tensor& values) {
  at::Tensor memory = one_of(self, shared_dims(self));
  const at::Tensor numbers = at::arange(memory.numel(), self.options().dtype(at::kLong)).reshape(memory.sizes());
  const at::Tensor places = numbers.expand(self.sizes()).index(indices.toOptionalTensorList());
  const at::Tensor each = values.to(self.device()).expand(places.sizes()).reshape(-1);
  memory.copy_(memory.reshape(-1).index_put({places.reshape(-1)}, each).reshape(memory.sizes()));
  give_back(op, stack, self);
}

void fill_masked(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  const c10::IValue* arguments = stack->data() + (stack->size() - op.arguments.size());
  const at::Tensor self = arguments[0].toTensor(), mask = arguments[1].toTensor();
  if (C10_LIKELY(!is_expanded(self)) || mask.scalar_type() != at::kBool) return record(op, *stack);
  warn("masked_fill_", "tensor[mask] = scalar");
  const c10::IValue value = arguments[2];
  fill(op, *stack, self, mask.expand_as(self), value);
}

void fill_indexed(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  const c10::IValue* arguments = stack->data() + (stack->size() - op.arguments.size());
  const at::Tensor self = arguments[0].toTensor();
  if (C10_LIKELY(!is_expanded(self))) return record(op, *stack);
  warn("index_fill_", "tensor[mask] = scalar");
  const at::Tensor mask = nothing_of(self).index_fill_(arguments[1].toInt(), arguments[2].toTensor(), 1);
  const c10::IValue value = arguments[3];
  fill(op, *stack, self, mask, value);
}

void put_indexed(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  const c10::IValue* arguments = stack->data() + (stack->size() - op.arguments.size());
  const at::Tensor self = arguments[0].toTensor(), values = arguments[2].toTensor();
  const bool adds = arguments[3].toBool();
  if (C10_LIKELY(!is_expanded(self))) return record(op, *stack);
  warn("index_put_", "tensor[indices] = tensor");
  if (adds) {
    const c10::IValue indices = arguments[1];
    return accumulate(op, *stack, self, indices, values);
  }
  if (values.numel() != 1) {
    const c10::IValue indices = arguments[1];
    return put(op, *stack, self, indices, values);
  }
  const at::Tensor one = at::ones({}, self.options().dtype(at::kBool));
  const at::Tensor mask = nothing_of(self).index_put_(arguments[1].toOptionalTensorList(), one);
  fill(op, *stack, self, mask, values.squeeze());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("masked_fill_.Scalar", torch::CppFunction::makeFromBoxedFunction<&fill_masked>());
  m.impl("masked_fill_.Tensor", torch::CppFunction::makeFromBoxedFunction<&fill_masked>());
  m.impl("index_fill_.int_Scalar", torch::CppFunction::makeFromBoxedFunction<&fill_indexed>());
  m.impl("index_fill_.int_Tensor", torch::CppFunction::makeFromBoxedFunction<&fill_indexed>());
  m.impl("index_put_", torch::CppFunction::makeFromBoxedFunction<&put_indexed>());
  m.impl("_index_put_impl_", torch::CppFunction::makeFromBoxedFunction<&put_indexed>());
}

}  // namespace

}  // namespace tpjrt::device
