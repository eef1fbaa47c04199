// Indices that PyTorch's CPU kernels believe.
#pragma once

#include "kernels/host/arguments.h"

namespace tpjrt::engine {

// Throws where an index is out of range. The kernels of some backwards read and write wherever it points, because the forward has
// looked at it. Here nobody need have read what the forward gives.
using IndexGuard = void (*)(const kernels::HostArguments& call);

// Null: the kernel looks itself, or has no indices.
IndexGuard index_guard(const graph::Signature& signature);

}  // namespace tpjrt::engine
