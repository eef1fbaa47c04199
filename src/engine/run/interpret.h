// Running a graph call by call, by PyTorch's own kernels on the CPU or on CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "engine/run/calls_plan.h"
#include "graph/tape/walk.h"

namespace tpjrt::engine {

// What the walk's leaves hold, and who does what PyTorch's kernels don't.
struct Interpreting {
  std::function<at::Tensor(const graph::NodePtr& leaf)> leaf;  // its values
  // May they be written? Asked where nothing can fail any more. Then the leaf has lost them.
  std::function<bool(const graph::NodePtr& leaf)> take;
  // The results of one call by a program of its own. Operands are dense, where the kernels run, and not written.
  // `call`: which of the walk's it is, or is part of.
  std::function<std::vector<at::Tensor>(const graph::Node& node, uint32_t call, c10::ArrayRef<at::Tensor> operands)>
      alone;
  // Whether such a program has found a mistake in its data.
  std::function<bool()> found_mistake;
};

// The results of the walk as tensors of the plan's device and of their types' strides, each with memory of its own or of a leaf that was taken.
// What has no kernel runs its decomposition. Random numbers, loops and groups are programs, as they are compiled; so is a call
// that a kernel refuses, for the program to say why. To be called below autograd and modes (device::BelowEverything). Throws
// what the wait hook throws, between two calls, as long as no leaf is written. `plan` serves the walk.
std::vector<at::Tensor> interpret(const graph::Walk& walk, const CallsPlan& plan, const Interpreting& with);

}  // namespace tpjrt::engine
