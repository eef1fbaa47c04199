// Digests of memory's content: who keeps something that was computed of memory, and is not told of writes to it, compares them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace tpjrt::kernels {

// Different contents have different digests, but for one chance in 2^64 or less.
using Digest = std::array<uint64_t, 8>;

// Digest of dense tensors on the CPU: dtype, sizes, strides and elements of each. Reads all of their memory, on PyTorch's threads.
Digest digest(c10::ArrayRef<at::Tensor> tensors);

}  // namespace tpjrt::kernels
