// Runs of equal elements along a dimension: how many there are is data, and is read (Note [Sizes of data]).
#pragma once

#include <ATen/core/Tensor.h>

namespace tpjrt::device {

// Of each run its first place, of each element its run, and the runs' lengths. `places` is of the count rounded up; what is behind
// the count is some place. `counts` is of the count.
struct Runs {
  at::Tensor places, inverse, counts;
  int64_t count = 0;
};
// `starts`: bools, of each element whether a run begins there.
Runs runs(const at::Tensor& starts);
// Where one of (n, …) differs from the one before it.
at::Tensor starts_of(const at::Tensor& x);

}  // namespace tpjrt::device
