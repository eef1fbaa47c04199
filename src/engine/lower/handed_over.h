// A trace as the text of a module that becomes part of another compiler's program.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <optional>
#include <string>
#include <vector>

#include "graph/node.h"

namespace tpjrt::engine {

// A leaf without data. Its address identifies it for as long as a value depends on it.
class Placeholder {
 public:
  explicit Placeholder(const at::Tensor& tensor);  // one that stands for it
  uint64_t address() const { return address_; }
  bool is_alive() const { return leaf_.use_count() > 0; }
  at::Tensor tensor() const;  // a new tensor for it; it must be alive

 private:
  c10::weak_intrusive_ptr<graph::Node> leaf_;
  uint64_t address_;
};

// Returns a new tensor over a leaf.
at::Tensor tensor_over_leaf(const graph::Node* leaf, c10::DeviceIndex device);

// Returns the addresses of the placeholders that these tensors depend on, in the order of a traversal.
std::vector<uint64_t> placeholders_below(const std::vector<at::Tensor>& tensors);

// Returns true if the value of `tensor` was computed from one of the others'.
bool rests_on(const at::Tensor& tensor, const std::vector<at::Tensor>& others);

struct HandedOver {
  std::string text;
  std::vector<at::Tensor> constants;  // tensors that the trace uses but did not make
};

// `inputs` are the first tensors of placeholders, unwritten; results may depend on no other placeholders. `key`: the
// input that is the random key (ui32[2]). Each draw derives its key from the number of draws before it in the trace.
HandedOver hand_over(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& results,
                     std::optional<size_t> key);

}  // namespace tpjrt::engine
