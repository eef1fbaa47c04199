// Loops and branches as nodes: torch's while_loop and cond, as StableHLO's own control flow.
//
// What is repeated or chosen is a Subgraph, traced by the recorder on placeholders like a decomposition, which the node's
// lowering holds. It draws no random numbers: a program has one key for each draw, and a loop would need one for each turn.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/lower/call_lowering.h"

namespace tpjrt::engine {

// A graph being traced to be held by a node.
class Region {
 public:
  // Placeholders like these tensors, but contiguous.
  explicit Region(const std::vector<at::Tensor>& operands);
  const std::vector<at::Tensor>& placeholders() const { return tensors_; }
  // Ends the trace. Throws ops::Unsupported where it can't be part of a node.
  void finish(const std::vector<at::Tensor>& results);
  const Subgraph& graph() const { return graph_; }

 private:
  std::vector<at::Tensor> tensors_;
  Subgraph graph_;
};

// torch's while_loop: the first `carried` operands are what the loop changes, and the results; the others stay. Regions take
// all operands; the condition gives a boolean of one element, the body the carried ones' next values.
std::vector<at::Tensor> while_loop(const std::vector<at::Tensor>& operands, size_t carried, const Region& condition,
                                   const Region& body);
// torch's cond: the regions take the operands and give results of the same types.
std::vector<at::Tensor> if_else(const at::Tensor& predicate, const std::vector<at::Tensor>& operands,
                                const Region& on_true, const Region& on_false);

// The tensor's value, contiguous.
graph::Value contiguous_value(const at::Tensor& tensor);

hlo::Values emit_control(ops::Emit& e, const CallLowering& lowering, const hlo::Values& operands);

}  // namespace tpjrt::engine
