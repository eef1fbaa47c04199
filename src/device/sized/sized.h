// Ops whose results' sizes depend on data: nonzero, a mask as index, unique, …
//
// Note [Sizes of data]: nobody knows the size before the operands do, so such an op cuts the graph, as on every device. Where
// PyTorch's kernels can read the device's memory, and graphs are interpreted first, its kernel runs at once, and its results are
// leaves. Elsewhere the size is counted on the device and read. What remains is recorded for that size rounded up, filled
// with elements that mean nothing, and the result is a view of its beginning: a new size is mostly no new program, and no data
// goes to the host.
#pragma once

#include <ATen/core/stack.h>

#include "device/call/operator.h"

namespace tpjrt::device {

// Does the call by PyTorch's kernel, if op.has_sizes_of_data; false, and the stack as it was, where another way is to be tried.
bool run_sized_on_memory(const Operator& op, torch::jit::Stack& stack);

// Is there no value to look at, because somebody else traces?
bool rests_on_placeholder(const at::Tensor& tensor);

// Does the call, if it is one of these; false, and the stack as it was, where the host's kernel has to do it or to say what is
// wrong with it.
bool run_sized(const Operator& op, torch::jit::Stack& stack);

// The size that is recorded for: so that there are few, and at most a half is for nothing. Not above `most`.
int64_t rounded_size(int64_t size, int64_t most);

}  // namespace tpjrt::device
