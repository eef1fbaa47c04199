// Interprets a graph with PyTorch's own kernels on the CPU or on CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "engine/run/calls_plan.h"
#include "graph/fingerprint/walk.h"

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

}  // namespace tpjrt::engine
