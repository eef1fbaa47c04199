// PyTorch's random draws on the CPU, by a key.
#pragma once

#include "kernels/host/host_kernel.h"

namespace tpjrt::kernels {

// Draws of this device's own (ops/creation/random.cpp), with the same bits as a program: the same integers, and floats that
// differ by the last bits of a logarithm or a sine. Null for any other call.
HostKernel own_draw(const graph::Signature& signature);

// Draws by PyTorch's kernels from a generator that the key seeds: poisson, binomial, gamma, Dirichlet and permutations.
// Programs on the CPU call the same functions; on other devices they draw other numbers (ops/creation/rejection.cpp). Null for
// any other call.
HostKernel pytorch_draw(const graph::Signature& signature);

}  // namespace tpjrt::kernels
