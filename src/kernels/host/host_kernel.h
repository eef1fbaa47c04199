// Calls that run on the CPU through other PyTorch calls, because PyTorch has no kernel for them or a wrong one, and
// random draws, which take a key of the device instead of a generator.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "graph/signature.h"

namespace tpjrt::kernels {

struct HostArguments;  // arguments.h

// Returns the results, on the operands' device. Throws errors in the arguments. May be called from any thread.
using HostKernel = std::vector<at::Tensor> (*)(const HostArguments& arguments);

// Returns null where PyTorch's own kernel runs the call, or nothing does.
HostKernel host_kernel(const graph::Signature& signature);
// Likewise, for kernels that take tensors of any device.
HostKernel any_device_kernel(const graph::Signature& signature);

}  // namespace tpjrt::kernels
