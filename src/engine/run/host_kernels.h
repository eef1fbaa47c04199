// What PyTorch's CPU does for calls that only other devices have kernels for.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "graph/node.h"

namespace tpjrt::engine {

// The results as CPU tensors; nothing where PyTorch has nothing that gives the same.
std::optional<std::vector<at::Tensor>> run_on_host(const graph::Node& node, c10::ArrayRef<at::Tensor> operands);

}  // namespace tpjrt::engine
