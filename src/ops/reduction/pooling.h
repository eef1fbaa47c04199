// What all pools share: the geometry of their windows, and which of two elements a max pool prefers.
#pragma once

#include <functional>

#include "ops/rule/rules.h"

namespace tpjrt::ops {

// Windows over the last `spatial` dimensions of a tensor; the dimensions before them are batch and channels.
struct Pool {
  int64_t spatial = 0;
  Dims kernel, stride, padding, dilation, in, out;  // one entry a spatial dimension

  int64_t taps() const;  // elements of a window
  // The windows are disjoint and cover the input.
  bool tiles() const;
};

// Up to this many taps a pool is a chain of elementwise ops on strided slices, which XLA fuses into one loop; larger
// windows are reduced.
inline constexpr int64_t kUnrolledTaps = 32;

// Sums of windows, and its transpose: every element of `y` added to all elements of its window.
Value sum_windows(Emit& e, const Value& x, const Pool& pool);
Value spread_windows(Emit& e, const Value& y, const Pool& pool);

// One number for each spatial position, as the sum over dimensions d of values[d][position in d].
Value plane_sum(Emit& e, const std::vector<Dims>& values, ElementType element);

// The body of a reduction over (value, flat index): the maximum, NaN above all; of equal values the first, of NaN the
// last, as PyTorch's loop leaves it. The identity is (lowest, kNoIndex).
inline constexpr int64_t kNoIndex = INT32_MAX;
Values better(Emit& e, const Values& arguments);

// grad at `indices` of a plane the size of `like`'s last `spatial` dimensions, zero elsewhere.
Value scatter_to_planes(Emit& e, const Value& grad, const Value& indices, const Type& like, int64_t spatial);

void add_adaptive_pooling_rules(RuleTable& rules);  // adaptive_pooling.cpp

}  // namespace tpjrt::ops
