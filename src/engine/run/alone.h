// What a call by a program of its own is given and gives, among calls by PyTorch's kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/memory/host_memory.h"
#include "graph/node.h"

namespace tpjrt::engine {

// An operand lies as its producer left it, which needn't be as the call's signature has it: a view's strides are in there.
inline at::Tensor of_memory(const at::Tensor& operand) {
  const bool lies_well = operand.is_non_overlapping_and_dense() && is_aligned(operand.const_data_ptr());
  return lies_well ? operand : operand.clone(at::MemoryFormat::Contiguous);
}

// A call's results, in the places of those that there are.
template <class TensorOf>
std::vector<at::Tensor> at_results(const graph::Node& node, const std::vector<graph::NodePtr>& leaves,
                                   const TensorOf& tensor_of) {
  const graph::Signature& s = *node.signature;
  std::vector<at::Tensor> tensors(s.results.size());
  for (size_t i = 0, next = 0; i < tensors.size(); ++i) {
    if (s.results[i]) tensors[i] = tensor_of(leaves[next++]);
  }
  return tensors;
}

}  // namespace tpjrt::engine
