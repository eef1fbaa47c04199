// A function that was run on placeholders: its arguments, and what it did to them (Note [Traces]).
//
// Placeholders are tensors on the device without data. What their storages hold after the run, and what the results'
// hold, is the program (CompiledGraph). Not under graph_lock().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "graph/node.h"

namespace tpjrt::engine {

// A number that a function is called with; monostate: None. Part of what a program is made for.
using PlainNumber = std::variant<std::monostate, int64_t, double, bool>;

// What an argument must be for a program: a tensor on `device` of these sizes and strides, or this very number.
struct ArgumentForm {
  bool is_tensor = false;
  c10::Device device = c10::kCPU;
  c10::ScalarType dtype = c10::kFloat;
  graph::Sizes sizes, strides;
  bool conjugate = false, negative = false;  // what its memory says is lazily so
  PlainNumber number;
};

struct TracedArgument : ArgumentForm {
  at::Tensor placeholder;  // stands for the argument's memory
  graph::NodePtr leaf;     // what its storage held first
};

// One result as the trace gave it, and the device that the caller wants it on.
struct TracedResult {
  at::Tensor tensor;
  c10::Device device = c10::kCPU;
};

class Trace {
 public:
  // `device`: which of the plugin's computes what arguments on the CPU are part of; none: this process's own, or the first.
  explicit Trace(std::optional<c10::DeviceIndex> device = std::nullopt);

  // One more argument: as the traced function sees it. A dense argument is traced as it is. Of another, the trace sees its
  // memory from the first to the last element (on the CPU, where that needs no copy) or a dense copy (on the device).
  at::Tensor add_tensor(c10::Device device, c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                        bool conjugate, bool negative);
  void add_number(PlainNumber number);

  // Of each argument: has its storage another value than the leaf it began with?
  std::vector<bool> changed() const;
  // What an argument's memory holds now, in the form of its leaf, however it was written (x.view(-1).add_(1)); none if it still
  // holds the leaf.
  graph::Value new_value(size_t index) const;
  // Of each argument: do these tensors depend on its first value?
  std::vector<bool> reached(const std::vector<at::Tensor>& from) const;
  // Another tensor with the first value of an argument.
  at::Tensor alias(size_t index) const;
  // The program will have only those arguments for which `kept` is true.
  void keep(const std::vector<bool>& kept);

  std::vector<TracedArgument> arguments;
  c10::DeviceIndex device;
};

// Were the two tensors computed by the same calls from the same values? False where that is not obvious.
bool is_same(const at::Tensor& a, const at::Tensor& b);

// Does the tensor's value rest on no argument of any trace and on no random draw? Then every call has the same.
bool is_known(const at::Tensor& tensor);

}  // namespace tpjrt::engine
