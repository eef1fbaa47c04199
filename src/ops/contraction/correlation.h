// The two contractions that convolutions and their gradients are made of, and what executes them.
//
// Everything is logically NCHW: batch 0, feature 1. On most platforms a contraction is one stablehlo.convolution; XLA:CPU
// is a hundred times slower than the CPU's own kernels at some of them, which are stated otherwise there.
#pragma once

#include "ops/rule/emit.h"

namespace tpjrt::ops {

// How a kernel moves over an input, a number for each spatial dimension.
struct Motion {
  Dims stride, dilation;  // the steps of the kernel, and between its taps
  Dims spread;            // the steps between the input's elements, zeros lie between them
  Dims low;               // how far before the input the kernel starts; how far behind it ends follows from the sizes
  int64_t groups = 1;
};

// x [N, C, in...] with the kernel w [O, C / groups, k...], or [C / groups, O, k...] if `swapped`: [N, O, out...].
// Of half types it may be f32 yet, so that a bias is added before the result is rounded.
Value correlate(Emit& e, const Value& x, const Value& w, bool swapped, const Motion& m, const Dims& out);

// The kernel's gradient [O, C / groups, k...] of that, from x and the result's gradient y [N, O, out...]; m.spread is 1.
Value correlate_kernel(Emit& e, const Value& x, const Value& y, const Motion& m, const Dims& kernel);

}  // namespace tpjrt::ops
