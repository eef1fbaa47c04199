// PyTorch's random draws on the CPU with the bits that a program draws (ops/creation/random.cpp): the same integers, and
// floats that differ by the last bits of a logarithm or a sine.
#pragma once

#include "engine/run/kernel/host_kernels.h"

namespace tpjrt::engine {

// Null where only a program draws so.
HostKernel host_draw(const graph::Signature& signature);

}  // namespace tpjrt::engine
