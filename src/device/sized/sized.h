// Ops whose results' sizes depend on data: nonzero, a mask as index, unique, …
//
// Note [Data-dependent sizes]: the size of such a result is unknown until the operands are computed, so the op cuts the
// graph, as on every device. If PyTorch's kernels can read the device's memory, and graphs are interpreted first,
// PyTorch's kernel runs immediately, and its results are leaves. Otherwise the size is counted on the device and
// read. The rest is recorded for that size rounded up, filled with meaningless elements, and the result is a view of
// its beginning: a new size rarely needs a new program, and no data goes to the host.
#pragma once

#include <ATen/core/stack.h>

#include "device/aten_call/operator.h"

namespace tpjrt::device {

// Runs the call by PyTorch's kernel, if op.has_sizes_of_data. Returns false, with the stack unchanged, if another way
// must be tried.
bool run_sized_on_memory(const Operator& op, torch::jit::Stack& stack);

// Returns whether the tensor has no value because it belongs to a trace.
bool rests_on_placeholder(const at::Tensor& tensor);

// Runs the call, if it is one of these ops. Returns false, with the stack unchanged, if the host's kernel must run it
// or report an error.
bool run_sized(const Operator& op, torch::jit::Stack& stack);

// Returns the size that is recorded, at most `most`: there are few such sizes, and at most half of it is unused.
int64_t rounded_size(int64_t size, int64_t most);

}  // namespace tpjrt::device
