// Products and correlations that several rules share.
//
// Everything is logically NCHW: batch 0, feature 1.
#pragma once

#include <optional>

#include "ops/rule/call.h"
#include "ops/rule/emit.h"

namespace tpjrt::ops {

// How a kernel moves over an input, with one number for each spatial dimension.
struct Motion {
  Dims stride, dilation;  // the steps of the kernel, and between its taps
  Dims spread;            // the steps between the input's elements, with zeros between them
  Dims low;               // how far before the input the kernel starts; the sizes say how far behind it ends
  int64_t groups = 1;
};

// A call of aten::convolution or its backward.
struct Geometry {
  size_t spatial;  // how many spatial dimensions
  Dims stride, padding, dilation, output_padding;
  int64_t groups;
  bool transposed;
};

// A library that computes whole calls. Null or no result: the call is made of correlations.
struct ConvolutionLibrary {
  // Returns the convolution with its bias, rounded once to `out`.
  std::optional<Value> (*convolution)(Emit& e, const Value& x, const Value& w, const std::optional<Value>& bias,
                                      const Geometry& g, const Type& out) = nullptr;
  // Return the gradients of x, and of w (and the bias if `of_bias`), from the result's gradient.
  std::optional<Value> (*of_input)(Emit& e, const Value& dy, const Value& x, const Value& w,
                                   const Geometry& g) = nullptr;
  std::optional<Values> (*of_weight)(Emit& e, const Value& dy, const Value& x, const Value& w, const Geometry& g,
                                     bool of_bias) = nullptr;
};

struct Correlation {
  // Returns x [N, C, in...] correlated with the kernel w [O, C / groups, k...], or [C / groups, O, k...] if
  // `swapped`: [N, O, out...]. For half types the result may still be f32, so that a bias is added before it is
  // rounded.
  Value (*result)(Emit& e, const Value& x, const Value& w, bool swapped, const Motion& m, const Dims& out);
  // Returns the kernel's gradient [O, C / groups, k...] of that, from x and the result's gradient y [N, O, out...];
  // m.spread is 1.
  Value (*kernel)(Emit& e, const Value& x, const Value& y, const Motion& m, const Dims& kernel);
  ConvolutionLibrary library = {};
};
extern const Correlation kWhole;                   // one stablehlo.convolution each
extern const Correlation kCorrelationOnCpu;        // ops/xla_cpu/correlation.cpp
extern const Correlation kCorrelationWithKernels;  // kCorrelationOnCpu, with library calls where they are faster

// ops/xla_cpu/library_product.cpp.
std::optional<Value> library_convolution(Emit& e, const Value& x, const Value& w, const std::optional<Value>& bias,
                                         const Geometry& g, const Type& out);
std::optional<Value> library_gradient_of_input(Emit& e, const Value& dy, const Value& x, const Value& w,
                                               const Geometry& g);
std::optional<Values> library_gradients_of_weight(Emit& e, const Value& dy, const Value& x, const Value& w,
                                                  const Geometry& g, bool of_bias);

// Defined in ops/xla_cpu/library_product.cpp.
Values library_frozen_convolution(Emit& e, const Call& c);

// The parts of kWhole.
Value correlate_whole(Emit& e, const Value& x, const Value& w, bool swapped, const Motion& m, const Dims& out);
// The contraction runs over the batch. The groups divide the batch, or the features; then x is [C / groups, groups ·
// N, in...].
enum class Groups : uint8_t { kOfBatch, kOfFeatures };
Value correlate_kernel_whole(Emit& e, const Value& x, const Value& y, const Motion& m, const Dims& kernel,
                             Groups groups);

// Returns the dimensions after batch and feature.
Dims spatial_of(const Dims& dims);
// Returns how far behind dimension i of the input, of size `in`, a kernel of size `kernel` ends after `out`
// positions. A negative result is the part that it doesn't reach.
int64_t high_of(const Motion& m, size_t i, int64_t in, int64_t kernel, int64_t out);

// An addend: the sum is beta * x + alpha * product.
struct Added {
  Value x;  // broadcast to the result
  double beta = 1, alpha = 1;
};

// One way to compute products of a and b, which have one dtype and are contracted as `dims` say.
struct Product {
  // Returns the product in `out`, in which it is accumulated, or rounded once to the operands' dtype if the caller
  // rounds to that.
  Value (*times)(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims, ElementType out);
  // Returns the product with `added`, rounded once to the operands' dtype. Null or no result: the caller adds after
  // the product.
  std::optional<Value> (*plus)(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                               const Added& added) = nullptr;
};

Value product_on_cpu(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                     ElementType out);  // ops/xla_cpu/product.cpp
// Defined in ops/xla_cpu/library_product.cpp.
Value product_with_kernels(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims, ElementType out);
std::optional<Value> sum_with_kernels(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                                      const Added& added);

inline constexpr Product kOnCpu{product_on_cpu};
inline constexpr Product kWithKernels{product_with_kernels, sum_with_kernels};

}  // namespace tpjrt::ops
