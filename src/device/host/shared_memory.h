// CPU and CUDA tensors over memory that another library assumes to be immutable: a write copies it first.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <optional>

namespace tpjrt::device {

// Returns a tensor over the memory of `source`, which is never written through it: a write copies the memory, once,
// and counts it (copies_on_write). `source` is kept alive while the memory is in use. Returns nothing if this PyTorch
// has no such hook.
std::optional<at::Tensor> write_protected(const at::Tensor& source);

// Returns a tensor over the current memory of a dense tensor, for a reader that keeps it and never writes to it:
// later writes to `tensor` copy the memory first, as above, if the reader still exists. Returns nothing if this
// PyTorch has no such hook, or if the tensor does not own its memory.
std::optional<at::Tensor> snapshot(const at::Tensor& tensor);

// Returns how often memory was copied this way, for torch_pjrt.metrics().
std::atomic<uint64_t>& copies_on_write();

}  // namespace tpjrt::device
