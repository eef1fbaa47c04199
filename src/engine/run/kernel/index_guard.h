// Checks of indices that PyTorch's CPU kernels don't check.
#pragma once

#include "kernels/host/arguments.h"

namespace tpjrt::engine {

// Throws if an index is out of range. Kernels of some backwards access memory at any index, because the forward has
// checked it. Here the forward may not have run.
using IndexGuard = void (*)(const kernels::HostArguments& call);

// Returns null if the kernel checks its indices or has none.
IndexGuard index_guard(const graph::Signature& signature);

}  // namespace tpjrt::engine
