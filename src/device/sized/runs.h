// Runs of equal elements along a dimension. Their number is data, and is read (Note [Data-dependent sizes]).
#pragma once

#include <ATen/core/Tensor.h>

namespace tpjrt::device {

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
