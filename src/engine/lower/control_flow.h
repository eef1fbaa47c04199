// Loops and branches as nodes: torch's while_loop and cond, lowered to StableHLO control flow.
//
// Each region is a Subgraph in the node's lowering, which the recorder traces on placeholders like a decomposition.
// Regions draw no random numbers: a program has one key for each draw, and a loop would need one for each iteration.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/lower/call_lowering.h"

namespace tpjrt::engine {

// A region while it is traced.
class Region {
 public:
  // Makes contiguous placeholders for these tensors.
  explicit Region(const std::vector<at::Tensor>& operands);
  const std::vector<at::Tensor>& placeholders() const { return tensors_; }
  // Ends the trace. Throws ops::Unsupported if the graph can't be a region.
  void finish(const std::vector<at::Tensor>& results);
  const Subgraph& graph() const { return graph_; }

 private:
  std::vector<at::Tensor> tensors_;
  Subgraph graph_;
};

// Records torch's while_loop. The loop changes the first `carried` operands, which are its results. Both regions take
// all operands; the condition returns a boolean of one element, the body the next carried values.
std::vector<at::Tensor> while_loop(const std::vector<at::Tensor>& operands, size_t carried, const Region& condition,
                                   const Region& body);
// Records torch's cond. Both regions take the operands and return results of equal types.
std::vector<at::Tensor> if_else(const at::Tensor& predicate, const std::vector<at::Tensor>& operands,
                                const Region& on_true, const Region& on_false);

// Returns the tensor's value, contiguous.
graph::Value contiguous_value(const at::Tensor& tensor);

hlo::Values emit_control(ops::Emit& e, const CallLowering& lowering, const hlo::Values& operands);

}  // namespace tpjrt::engine
