// What PyTorch does, by other calls, for calls that only other devices have kernels for.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "graph/node.h"

namespace tpjrt::engine {

// Gives the results where the operands are.
using HostKernel = std::vector<at::Tensor> (*)(const graph::Node& node, c10::ArrayRef<at::Tensor> operands);

// Null where PyTorch has nothing that gives the same.
HostKernel host_kernel(const graph::Signature& signature);
// Likewise, of those that are for tensors of any device.
HostKernel any_device_kernel(const graph::Signature& signature);

}  // namespace tpjrt::engine
