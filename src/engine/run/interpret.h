// Running a graph call by call, by PyTorch's own kernels on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "graph/tape/walk.h"

namespace tpjrt::engine {

// The results of the walk as CPU tensors of their types' strides. `leaf` gives a leaf's values, which are not written.
// Throws what PyTorch's kernels throw. To be called below autograd and modes (device::BelowEverything).
std::vector<at::Tensor> interpret(const graph::Walk& walk,
                                  const std::function<at::Tensor(const graph::Node& leaf)>& leaf);

}  // namespace tpjrt::engine
