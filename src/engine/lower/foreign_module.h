// Modules of other compilers: calls of functions that their frontend lowered to StableHLO, and traces as text for them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/lower/call_lowering.h"
#include "graph/node.h"

namespace tpjrt::engine {

// A function for operands of certain types. Its nodes share one signature, so that graphs which call it share a
// program.
class ForeignFunction {
 public:
  // `functions`: the text of private func.func ops, including `name`, which is called. No other function's text may
  // define the names in it. `label`: the node's name in listings. Operands and results are contiguous.
  ForeignFunction(const std::string& label, std::string name, std::string functions,
                  const std::vector<graph::TypePtr>& operands, std::vector<graph::TypePtr> results,
                  c10::DeviceIndex device);

  // Records a call. Must not be called under graph_lock().
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& operands) const;

 private:
  const graph::Signature* signature_;  // never freed: a program may outlive everything else that refers to it
};

hlo::Values emit_foreign_call(ops::Emit& e, const graph::Signature& signature, const CallLowering& lowering,
                              const hlo::Values& operands);

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
