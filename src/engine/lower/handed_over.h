// A trace as the text of a module that becomes part of another compiler's program.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <optional>
#include <string>
#include <vector>

#include "graph/node.h"

namespace tpjrt::engine {

// A leaf without data, known by its address for as long as anything rests on it.
class Placeholder {
 public:
  explicit Placeholder(const at::Tensor& tensor);  // that stands for it
  uint64_t address() const { return address_; }
  bool is_alive() const { return leaf_.use_count() > 0; }
  at::Tensor tensor() const;  // another that stands for it; it is alive

 private:
  c10::weak_intrusive_ptr<graph::Node> leaf_;
  uint64_t address_;
};

// Another tensor over a leaf.
at::Tensor tensor_over_leaf(const graph::Node* leaf, c10::DeviceIndex device);

// The placeholders that these tensors rest on, by address, in the order in which they are met.
std::vector<uint64_t> placeholders_below(const std::vector<at::Tensor>& tensors);

// Was the value of `tensor` computed of one of the others'?
bool rests_on(const at::Tensor& tensor, const std::vector<at::Tensor>& others);

struct HandedOver {
  std::string text;                   // @main takes the inputs, then the constants, all row-major
  std::vector<at::Tensor> constants;  // that the trace uses, and has not made
};

// `inputs` are placeholders' first tensors, which nothing has written to; results may rest on no other placeholders. `key`:
// which input is the random key (ui32[2]). Each draw has a key of its own, by how many were drawn in the trace before it.
HandedOver hand_over(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& results,
                     std::optional<size_t> key);

}  // namespace tpjrt::engine
