// The two contractions that convolutions and their gradients are made of, and what executes them.
//
// Everything is logically NCHW: batch 0, feature 1.
#pragma once

#include <optional>

#include "ops/rule/call.h"
#include "ops/rule/emit.h"

namespace tpjrt::ops {

// How a kernel moves over an input, a number for each spatial dimension.
struct Motion {
  Dims stride, dilation;  // the steps of the kernel, and between its taps
  Dims spread;            // the steps between the input's elements, zeros lie between them
  Dims low;               // how far before the input the kernel starts; how far behind it ends follows from the sizes
  int64_t groups = 1;
};

// A call of aten::convolution or its backward.
struct Geometry {
  size_t spatial;  // how many spatial dimensions
  Dims stride, padding, dilation, output_padding;
  int64_t groups;
  bool transposed;
};

// Is a dimension strided into, or out of, so few elements? oneDNN by tiles reads what is not there where the last one is.
constexpr bool is_strided_to_few(int64_t stride, int64_t size) { return stride != 1 && size <= 2; }
// Of multiplications in a convolution, for which a call of a library costs less than it saves.
inline constexpr int64_t kLeastMultiplications = 1 << 19;

// Who does such calls whole. Null or nothing: they are made of correlations.
struct ConvolutionLibrary {
  // With its bias, rounded once to `out`.
  std::optional<Value> (*convolution)(Emit& e, const Value& x, const Value& w, const std::optional<Value>& bias,
                                      const Geometry& g, const Type& out) = nullptr;
  // From the result's gradient, that of x; and that of w, and the bias's if asked.
  std::optional<Value> (*of_input)(Emit& e, const Value& dy, const Value& x, const Value& w,
                                   const Geometry& g) = nullptr;
  std::optional<Values> (*of_weight)(Emit& e, const Value& dy, const Value& x, const Value& w, const Geometry& g,
                                     bool of_bias) = nullptr;
};

struct Correlation {
  // x [N, C, in...] with the kernel w [O, C / groups, k...], or [C / groups, O, k...] if `swapped`: [N, O, out...].
  // Of half types it may be f32 yet, so that a bias is added before the result is rounded.
  Value (*result)(Emit& e, const Value& x, const Value& w, bool swapped, const Motion& m, const Dims& out);
  // The kernel's gradient [O, C / groups, k...] of that, from x and the result's gradient y [N, O, out...]; m.spread is 1.
  Value (*kernel)(Emit& e, const Value& x, const Value& y, const Motion& m, const Dims& kernel);
  ConvolutionLibrary library = {};
};
extern const Correlation kWhole;                   // one stablehlo.convolution each
extern const Correlation kCorrelationOnCpu;        // ops/cpu/correlation.cpp
extern const Correlation kCorrelationWithKernels;  // the same, but for what is the library's

// ops/cpu/library_convolution.cpp. The first: are those of that dtype the library's here, unless they are small?
bool are_the_librarys(ElementType element);
std::optional<Value> library_convolution(Emit& e, const Value& x, const Value& w, const std::optional<Value>& bias,
                                         const Geometry& g, const Type& out);
std::optional<Value> library_gradient_of_input(Emit& e, const Value& dy, const Value& x, const Value& w,
                                               const Geometry& g);
std::optional<Values> library_gradients_of_weight(Emit& e, const Value& dy, const Value& x, const Value& w,
                                                  const Geometry& g, bool of_bias);

// ops/cpu/frozen_convolution.cpp
Values library_frozen_convolution(Emit& e, const Call& c);

// The parts of kWhole.
Value correlate_whole(Emit& e, const Value& x, const Value& w, bool swapped, const Motion& m, const Dims& out);
// What is contracted is the batch: the groups are of it, or of features, for which x is [C / groups, groups · N, in...].
enum class Groups : uint8_t { kOfBatch, kOfFeatures };
Value correlate_kernel_whole(Emit& e, const Value& x, const Value& y, const Motion& m, const Dims& kernel,
                             Groups groups);

// The dimensions after batch and feature.
Dims spatial_of(const Dims& dims);
// How far behind the input's dimension i of size `in` the kernel's size `kernel` ends after `out` positions; negative: what it
// doesn't reach.
int64_t high_of(const Motion& m, size_t i, int64_t in, int64_t kernel, int64_t out);

}  // namespace tpjrt::ops
