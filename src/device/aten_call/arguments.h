// A call's arguments, flattened: tensor operands, numbers, and the key that identifies the call's signature.
//
// Turns a signature back into a call: the stack for a boxed kernel, and the tensors that it leaves there.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "device/aten_call/operator.h"
#include "graph/scalar_value.h"
#include "graph/signature.h"

namespace tpjrt::device {

struct Arguments {
  c10::SmallVector<uint64_t, 64> key;
  c10::SmallVector<const at::Tensor*, 8> operands;  // the caller's own
  c10::SmallVector<uint32_t, 2> written;            // operands that the call writes, lists not included
  c10::SmallVector<uint32_t, 2> written_in_lists;
  c10::SmallVector<graph::ScalarValue, 4> scalars;  // without the random key
  c10::SmallVector<uint32_t, 2> unusual;  // arguments that are constants, although they could be numbers (Usual)
  std::optional<at::Generator> generator;
  c10::DeviceIndex device = -1;
  bool recordable = true;  // false: a node can't represent an argument's form, so the host runs the call
  bool by_value = false;   // the numbers' values are part of the key

  uint64_t hash() const;
  graph::CompositesPtr composites() const;  // asked for when the call was flattened
  graph::Precisions precisions() const;     // likewise; the highest for calls that multiply no matrices
  // Adds the numbers' values to the key, for calls whose lowering holds them.
  void add_numbers_to_key();
};

// Returns the precisions that PyTorch's settings ask for now.
graph::Precisions asked_precisions(graph::PrecisionSettings settings);

// Flattens arguments in the order of the schema, from C++ or from a stack: equal calls give equal words. Throws for
// tensors of two devices and for other layouts.
class Flattener {
 public:
  Flattener(const Operator& op, Arguments& out);

  void add(const at::Tensor& tensor) {
    const bool written = op_.arguments[next_++].written;
    const uint32_t index = operand_count();
    append(tensor, written);
    if (written && operand_count() > index) out_.written.push_back(index);
  }
  void add(const std::optional<at::Tensor>& tensor) { add(tensor ? *tensor : undefined_); }
  void add(at::TensorList tensors) {
    begin_list(tensors.size());
    for (const at::Tensor& tensor : tensors) append_element(tensor);
    ++next_;
  }
  void add(const c10::Scalar& scalar) {
    append(scalar);
    ++next_;
  }
  void add(c10::ArrayRef<c10::Scalar> scalars) {
    begin_list(scalars.size());
    for (const c10::Scalar& scalar : scalars) append(scalar);
    ++next_;
  }
  void add(const std::optional<at::Generator>& generator) {
    if (generator) out_.generator = generator;
    ++next_;
  }
  template <class Constant>
  void add(const Constant& constant) {
    append(constant);
    ++next_;
  }
  // Adds an argument on the stack. A lazy conjugate or negative bit is resolved in place, and index tensors on the
  // CPU are copied to the device.
  void add(c10::IValue& value);

  // Returns whether an argument needs the form on the stack. If so, the flattened call must not be used.
  bool odd() const { return odd_; }

 private:
  bool is_usual(double value);  // for the next argument
  void append(const at::Tensor& tensor, bool written);
  void append_element(const at::Tensor& tensor) {
    const bool written = op_.arguments[next_].written;
    const uint32_t index = operand_count();
    append(tensor, written);
    if (written && operand_count() > index) out_.written_in_lists.push_back(index);
  }
  void append(const c10::Scalar& scalar);
  void append(int64_t value);
  void append(bool value);
  void append(double value);
  void append(std::string_view text);
  void append(c10::ScalarType dtype) { append(static_cast<int64_t>(dtype)); }
  void append(c10::IntArrayRef values) {
    begin_list(values.size());
    for (const int64_t value : values) append(value);
  }
  template <size_t N>
  void append(const std::array<bool, N>& values) {
    begin_list(N);
    for (const bool value : values) append(value);
  }
  template <class T>
  void append(const std::optional<T>& value) {
    value ? append(*value) : append_none();
  }
  void append(at::OptionalIntArrayRef values) { values ? append(*values) : append_none(); }
  void append_none();
  void append_constant(const c10::IValue& value);
  void begin_list(size_t size);
  uint32_t operand_count() const { return static_cast<uint32_t>(out_.operands.size()); }

  const Operator& op_;
  Arguments& out_;
  size_t next_ = 0;
  bool boxed_ = false;  // the argument comes from the stack, with its lazy bits resolved
  bool odd_ = false;
  double last_ = 0;  // the last argument of is_usual()
  at::Tensor undefined_;
};

// Flattens `values`, the call's arguments on the stack.
void flatten(const Operator& op, c10::IValue* values, Arguments& out);

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
