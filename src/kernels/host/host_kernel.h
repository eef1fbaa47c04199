// Calls that are run on the CPU by other calls of PyTorch, because it has no kernel of its own for them or a wrong one, and
// random draws, which take a key of the device in place of a generator.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "graph/signature.h"

namespace tpjrt::kernels {

struct HostArguments;  // arguments.h

// Returns the results, on the device of the operands. Throws what is wrong with them. From any thread.
using HostKernel = std::vector<at::Tensor> (*)(const HostArguments& arguments);

// Null where PyTorch's own kernel does the call, or where nothing does.
HostKernel host_kernel(const graph::Signature& signature);
// Likewise, of those that are for tensors of any device.
HostKernel any_device_kernel(const graph::Signature& signature);

}  // namespace tpjrt::kernels
