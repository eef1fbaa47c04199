// A signature written out as a call again: the stack that a boxed kernel takes, and the tensors that it leaves there.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

#include <functional>
#include <vector>

#include "graph/number.h"
#include "graph/signature.h"

namespace tpjrt::device {

// What is the same in each call of a signature. Immutable; the signature outlives it.
class StackForm {
 public:
  // Constants are given as they are; with `device`, those that are devices as this one.
  explicit StackForm(const graph::Signature& signature, std::optional<c10::Device> device = std::nullopt);

  using OfOperand = c10::function_ref<at::Tensor(uint32_t operand)>;
  using OfNumber = c10::function_ref<at::Tensor(const graph::Parameter::Entry& entry)>;
  // Appends a call: numbers as `numbers` says, and for each operand what `tensor` gives. Generators are None.
  void push(torch::jit::Stack& stack, c10::ArrayRef<graph::Number> numbers, OfOperand tensor) const;
  // Likewise, with other tensors for the numbers of the CPU.
  void push(torch::jit::Stack& stack, c10::ArrayRef<graph::Number> numbers, OfOperand tensor, OfNumber number) const;

 private:
  struct Argument {
    const graph::Parameter* parameter;
    c10::IValue constant;      // of a constant; None where an undefined tensor is None
    c10::TypePtr element;      // of a list
    bool may_be_none = false;  // the tensor, or the list's elements
  };
  std::vector<Argument> arguments_;
};

// A tensor of one number on the CPU, as an argument among tensors of the device.
at::Tensor host_number(const graph::Parameter::Entry& entry, c10::ArrayRef<graph::Number> numbers);

// One call, as StackForm gives it.
torch::jit::Stack make_stack(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers,
                             const std::function<at::Tensor(uint32_t operand)>& tensor);

// The tensors that a call left on the stack, lists one by one. None is an undefined tensor; what is no tensor is left out.
std::vector<at::Tensor> tensors_of(const torch::jit::Stack& returned);
// The same of a stack that is not needed any more, and is empty afterwards.
void take_tensors(torch::jit::Stack& returned, std::vector<at::Tensor>& tensors);

}  // namespace tpjrt::device
