// A call's arguments, flattened: tensor operands, numbers, and the key that names the call's signature.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <optional>
#include <string_view>

#include "device/call/operator.h"
#include "graph/composites.h"
#include "graph/number.h"
#include "graph/precision.h"

namespace tpjrt::device {

struct Arguments {
  c10::SmallVector<uint64_t, 64> key;
  c10::SmallVector<const at::Tensor*, 8> operands;  // the caller's own
  c10::SmallVector<uint32_t, 2> written;            // operands that the call writes, lists not included
  c10::SmallVector<uint32_t, 2> written_in_lists;
  c10::SmallVector<graph::Number, 4> numbers;  // the random key not included
  c10::SmallVector<uint32_t, 2> unusual;       // arguments that are constants, although they may be numbers (Usual)
  std::optional<at::Generator> generator;
  c10::DeviceIndex device = -1;
  bool recordable = true;  // false: an argument has a form that no node can state; the host runs the call
  bool by_value = false;   // the numbers' values are part of the key

  uint64_t hash() const;
  graph::CompositesPtr composites() const;  // asked for when the call was written down
  graph::Precisions precisions() const;     // likewise; the highest for calls that multiply no matrices
  // Makes the numbers' values part of the key, for calls whose lowering holds them.
  void add_numbers_to_key();
};

// What PyTorch is asked for now.
graph::Precisions asked_precisions(graph::PrecisionSettings settings);

// Writes arguments down, in the order of the schema, from C++ or from a stack: the same call gives the same words.
// Throws for tensors of two devices and for other layouts.
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
  // An argument on the stack. One with a lazy conjugate or negative bit is resolved in place, and index tensors on the
  // CPU are copied to the device.
  void add(c10::IValue& value);

  // Was there an argument that only the stack's form can state? Then nothing may be done with what is written here.
  bool odd() const { return odd_; }

 private:
  bool is_usual(double value);  // for the argument that is next
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
  bool boxed_ = false;  // the argument comes from the stack, with its bits resolved
  bool odd_ = false;
  double last_ = 0;  // what is_usual() was asked last
  at::Tensor undefined_;
};

// `values` are the call's arguments on the stack.
void flatten(const Operator& op, c10::IValue* values, Arguments& out);

}  // namespace tpjrt::device
