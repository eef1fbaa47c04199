// Calls whose PyTorch CPU kernel gives a wrong result.
#pragma once

#include "kernels/host/host_kernel.h"

namespace tpjrt::kernels {

// Returns null where PyTorch's kernel is right.
HostKernel corrected(const graph::Signature& signature);

}  // namespace tpjrt::kernels
