// Operands and results of a single-op program among calls of PyTorch's kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/memory/host_memory.h"
#include "graph/node.h"

namespace tpjrt::engine {

// Returns the operand, or a contiguous copy if a program can't use its memory in place. Its layout is its producer's
// and may differ from the call's signature, whose type may have a view's strides.
inline at::Tensor of_memory(const at::Tensor& operand) {
  const bool is_usable = operand.is_non_overlapping_and_dense() && is_aligned(operand.const_data_ptr());
  return is_usable ? operand : operand.clone(at::MemoryFormat::Contiguous);
}

// Returns a call's results by index; undefined ones stay empty.
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
