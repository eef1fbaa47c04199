// Interprets a graph with PyTorch's own kernels on the CPU or on CUDA.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/memory/host_memory.h"
#include "engine/run/calls_plan.h"
#include "graph/fingerprint/walk.h"
#include "graph/node.h"

namespace tpjrt::engine {

// The values of the walk's leaves, and the execution of calls that PyTorch's kernels don't run.
struct Interpreting {
  std::function<at::Tensor(const graph::NodePtr& leaf)> leaf;  // returns its values
  // Returns true if they may be overwritten; the leaf has then lost them. Called only when nothing can fail any more.
  std::function<bool(const graph::NodePtr& leaf)> take;
  // Runs one call as a single-op program and returns its results. Operands are dense, on the kernels' device, and not
  // written. `call`: index of the walk's call that it is or belongs to.
  std::function<std::vector<at::Tensor>(const graph::Node& node, uint32_t call, c10::ArrayRef<at::Tensor> operands)>
      alone;
  // Returns true if such a program's runtime assertion failed.
  std::function<bool()> found_mistake;
};

// Returns the walk's results as tensors on the plan's device with their types' strides. Each has memory of its own or
// of a leaf that was taken. Calls without a kernel run their decomposition. Random ops, loops and groups run as
// programs, as do calls that a kernel refuses, so that the program reports the error. Must be called below autograd and
// modes (device::BelowEverything). Until a leaf is written, an exception of the wait hook passes between two calls.
// `plan` must serve the walk.
std::vector<at::Tensor> interpret(const graph::Walk& walk, const CallsPlan& plan, const Interpreting& with);

// Operands and results of a single-op program among calls of PyTorch's kernels.

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

// The mode in which calls on the host make their tensors. PyTorch's kernels must make plain tensors even if the user is
// in inference mode, because others may write to them later.
struct Plain {
  std::optional<c10::InferenceMode> mode;
  std::optional<at::NoGradGuard> grad;
  Plain() {
    if (!c10::InferenceMode::is_enabled()) return;
    mode.emplace(false);
    grad.emplace();
  }
};

}  // namespace tpjrt::engine
