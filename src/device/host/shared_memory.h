// CPU and CUDA tensors over memory that another library takes for immutable: whoever writes to them copies it first.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <optional>

namespace tpjrt::device {

// A tensor over the memory of `source`, which is never written through it: a write copies the memory, once, and counts
// it (copies_on_write). `source` is kept for as long as the memory is used. None where this PyTorch can't.
std::optional<at::Tensor> write_protected(const at::Tensor& source);

// A tensor over the memory of a dense tensor as it is now, for a reader that keeps it and never writes to it: later writes to
// `tensor` copy the memory first, as above, where the reader is still there. None where this PyTorch can't, or the memory
// is not its own.
std::optional<at::Tensor> snapshot(const at::Tensor& tensor);

// How often memory was copied so, for torch_pjrt.metrics().
std::atomic<uint64_t>& copies_on_write();

}  // namespace tpjrt::device
