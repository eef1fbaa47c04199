// Ops whose results' sizes depend on data: nonzero, a mask as index, unique, …
//
// Note [Data-dependent sizes]: the size of such a result is unknown until the operands are computed, so the op cuts the
// graph, as on every device. If PyTorch's kernels can read the device's memory, PyTorch's kernel runs immediately,
// whether graphs are compiled or not, and its results are leaves. Otherwise the size is counted on the device and
// read. The rest is recorded for that size rounded up, filled with meaningless elements, and the result is a view of
// its beginning: a new size rarely needs a new program, and no data goes to the host.
//
// Runs of equal elements along a dimension. Their number is data, and is read (Note [Data-dependent sizes]).
#pragma once

#include <ATen/core/Tensor.h>
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

// The first place of each run, the run of each element, and the runs' lengths. `places` has the rounded count;
// entries beyond the count are arbitrary places. `counts` has the exact count.
struct Runs {
  at::Tensor places, inverse, counts;
  int64_t count = 0;
};
// Returns the runs of `starts`: bools, whether a run begins at each element.
Runs runs(const at::Tensor& starts);
// Returns where one of (n, …) differs from the one before it.
at::Tensor starts_of(const at::Tensor& x);

}  // namespace tpjrt::device
