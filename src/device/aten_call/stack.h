// Turns a signature back into a call: the stack for a boxed kernel, and the tensors that it leaves there.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

#include <functional>
#include <vector>

#include "graph/scalar_value.h"
#include "graph/signature.h"

namespace tpjrt::device {

// The part of a call that is the same for each call of a signature. Immutable; the signature outlives it.
class StackTemplate {
 public:
  // Constants are passed unchanged, except that with `device` constants that are devices become that one.
  explicit StackTemplate(const graph::Signature& signature, std::optional<c10::Device> device = std::nullopt);

  using OfOperand = c10::function_ref<at::Tensor(uint32_t operand)>;
  using OfScalar = c10::function_ref<at::Tensor(const graph::Parameter::Entry& entry)>;
  // Appends a call with the given numbers, and `tensor(i)` for each operand. Generators are None.
  void push(torch::jit::Stack& stack, c10::ArrayRef<graph::ScalarValue> scalars, OfOperand tensor) const;
  // Likewise, with `number` as the tensors of CPU scalars.
  void push(torch::jit::Stack& stack, c10::ArrayRef<graph::ScalarValue> scalars, OfOperand tensor,
            OfScalar number) const;

 private:
  struct Argument {
    const graph::Parameter* parameter;
    c10::IValue constant;      // a constant's value; None where an undefined tensor is None
    c10::TypePtr element;      // a list's element type
    bool may_be_none = false;  // the tensor, or a list's elements
  };
  std::vector<Argument> arguments_;
};

// Returns a 0-d tensor on the CPU, as an argument among tensors of the device.
at::Tensor host_scalar(const graph::Parameter::Entry& entry, c10::ArrayRef<graph::ScalarValue> scalars);

// Returns one call's stack, by StackTemplate.
torch::jit::Stack make_stack(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars,
                             const std::function<at::Tensor(uint32_t operand)>& tensor);

// Returns the tensors that a call left on the stack, with lists flattened. None is an undefined tensor; other values
// are omitted.
std::vector<at::Tensor> tensors_of(const torch::jit::Stack& returned);
// Likewise, but takes them from a stack that is no longer needed and is empty afterwards.
void take_tensors(torch::jit::Stack& returned, std::vector<at::Tensor>& tensors);

}  // namespace tpjrt::device
