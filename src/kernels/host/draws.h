// Random draws on the CPU from a key.
#pragma once

#include "kernels/host/host_kernel.h"

namespace tpjrt::kernels {

// Returns this device's own draw (ops/creation/random.cpp), with the same bits as a program: the same integers, and
// floats that differ by the last bits of a logarithm or a sine. Returns null for any other call.
HostKernel own_draw(const graph::Signature& signature);

// Returns a draw by PyTorch's kernel from a generator seeded with the key: poisson, binomial, gamma, Dirichlet and
// permutations. Programs on the CPU call the same functions; other devices draw other numbers
// (ops/creation/draw.cpp). Returns null for any other call.
HostKernel pytorch_draw(const graph::Signature& signature);

}  // namespace tpjrt::kernels
