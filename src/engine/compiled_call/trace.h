// A function that was run on placeholders: its arguments and its effects on them (Note [Traces]).
//
// Placeholders are tensors on the device without data. The values that their storages and the results' storages hold
// after the run define the program (CompiledGraph). Must not be called under graph_lock().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "graph/node.h"

namespace tpjrt::engine {

// A scalar argument of a function; monostate is None. Scalars are part of a program's key.
using PlainScalar = std::variant<std::monostate, int64_t, double, bool>;

// Assertions on an argument of a program: a tensor on `device` of these sizes and strides, or this scalar.
struct ArgumentSpec {
  bool is_tensor = false;
  c10::Device device = c10::kCPU;
  c10::ScalarType dtype = c10::kFloat;
  graph::Sizes sizes, strides;
  bool conjugate = false, negative = false;  // lazy bits of its memory
  PlainScalar number;
};

struct TracedArgument : ArgumentSpec {
  at::Tensor placeholder;  // stands for the argument's memory
  graph::NodePtr leaf;     // the storage's first value
};

// One result of the trace, and the device that the caller wants it on.
struct TracedResult {
  at::Tensor tensor;
  c10::Device device = c10::kCPU;
};

class Trace {
 public:
  // `device`: index of the plugin's device that computes with CPU arguments; by default this process's own, or the
  // first.
  explicit Trace(std::optional<c10::DeviceIndex> device = std::nullopt);

  // Appends an argument. A dense argument is traced as it is. For any other, the traced function sees its memory from
  // the first to the last element (on the CPU, if that needs no copy) or a dense copy (on the device).
  at::Tensor add_tensor(c10::Device device, c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                        bool conjugate, bool negative);
  void add_number(PlainScalar number);

  // Returns for each argument whether its storage no longer holds its initial leaf.
  std::vector<bool> changed() const;
  // Returns the current value of an argument's memory in its leaf's layout, however it was written
  // (x.view(-1).add_(1)); empty if it still holds the leaf.
  graph::Value new_value(size_t index) const;
  // Returns for each argument whether these tensors depend on its initial value.
  std::vector<bool> reached(const std::vector<at::Tensor>& from) const;
  // Returns another tensor with an argument's initial value.
  at::Tensor alias(size_t index) const;
  // Drops the program's arguments for which `kept` is false.
  void keep(const std::vector<bool>& kept);

  std::vector<TracedArgument> arguments;
  c10::DeviceIndex device;
};

// Returns true if the same calls computed both tensors from the same values; false if that is not obvious.
bool is_same(const at::Tensor& a, const at::Tensor& b);

// Returns true if the tensor depends on no argument of any trace and on no random draw, so that every call gives it the
// same value.
bool is_known(const at::Tensor& tensor);

}  // namespace tpjrt::engine
