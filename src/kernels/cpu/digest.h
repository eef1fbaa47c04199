// Digests of memory's content. A cache of values computed from memory compares them if it isn't notified of writes.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace tpjrt::kernels {

// Different contents have different digests, except with a probability of at most 2^-64.
using Digest = std::array<uint64_t, 8>;

// Returns the digest of dense CPU tensors: dtype, sizes, strides and elements of each. Reads all of their memory, on
// PyTorch's threads.
Digest digest(c10::ArrayRef<at::Tensor> tensors);

}  // namespace tpjrt::kernels
