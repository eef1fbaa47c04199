// Helpers of reduction that other families use, too: pools, batch norms and bisection.
#pragma once

#include <functional>
#include <optional>

#include "ops/rule/emit.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {

// Windows over the last `spatial` dimensions of a tensor; the dimensions before them are batch and channels.
struct Pool {
  int64_t spatial = 0;
  Dims kernel, stride, padding, dilation, in, out;  // one entry for each spatial dimension

  int64_t taps() const;  // the number of elements in a window
  // Returns whether the windows are disjoint and cover the input.
  bool tiles() const;
};

// Up to this many taps a pool is a chain of elementwise ops on strided slices, which XLA fuses into one loop; larger
// windows are reduced.
inline constexpr int64_t kUnrolledTaps = 32;

// Sums of windows, and the transpose, which adds every element of `y` to all elements of its window.
Value sum_windows(Emit& e, const Value& x, const Pool& pool);
Value spread_windows(Emit& e, const Value& y, const Pool& pool);

// Returns one number for each spatial position: the sum over dimensions d of values[d][position in d].
Value plane_sum(Emit& e, const std::vector<Dims>& values, ElementType element);

// The body of a reduction over (value, flat index). The maximum wins, and NaN over all; the first of equal values and
// the last NaN, as in PyTorch's loop. The identity is (lowest, kNoIndex).
inline constexpr int64_t kNoIndex = INT32_MAX;
Values better(Emit& e, const Values& arguments);

// Returns grad at `indices` of a plane the size of `like`'s last `spatial` dimensions, and zero elsewhere.
Value scatter_to_planes(Emit& e, const Value& grad, const Value& indices, const Type& like, int64_t spatial);

void add_adaptive_pooling_rules(RuleTable& rules);  // adaptive_pooling.cpp

// Batch norms that a library computes as a whole.

// Returns the batch norm of images x by their own statistics, with f32 weight and bias: the result, and in f32 the
// mean, 1 / deviation and the unbiased variance of each channel. Returns nothing where XLA computes it. Defined in
// ops/xla_cpu/library_calls.cpp.
std::optional<Values> library_batch_norm(Emit& e, const Value& x, const Value& weight, const Value& bias, double eps);
// Returns the gradients of x and, in f32, of weight and bias, from the result's gradient.
std::optional<Values> library_batch_norm_gradients(Emit& e, const Value& dy, const Value& x, const Value& weight,
                                                   const Value& mean, const Value& rstd, double eps);

// Bisection of sorted rows.

// Returns the gap of the sorted rows of `sequence` in which each value is: the number of elements below it (or, with
// `right`, not above it). If `sequence` has more than one dimension, each row is searched for its own values. NaN
// counts as above everything.
Value search(Emit& e, const Value& sequence, const Value& values, bool right);

}  // namespace tpjrt::ops
