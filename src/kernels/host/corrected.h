// Calls for which PyTorch's CPU kernel gives something else than they mean.
#pragma once

#include "kernels/host/host_kernel.h"

namespace tpjrt::kernels {

// Null where PyTorch's kernel is right.
HostKernel corrected(const graph::Signature& signature);

}  // namespace tpjrt::kernels
