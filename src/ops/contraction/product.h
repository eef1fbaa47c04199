// What products of matrices and vectors are emitted as, by platform.
#pragma once

#include <optional>

#include "ops/rule/emit.h"

namespace tpjrt::ops {

// beta * x + alpha * the product.
struct Added {
  Value x;  // broadcast to the result
  double beta = 1, alpha = 1;
};

// One way of computing products of a and b, of one dtype, contracted as `dims` say.
struct Product {
  // In `out`, in which it is accumulated; or in the operands' dtype, rounded once, where that is what the caller rounds to.
  Value (*times)(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims, ElementType out);
  // With what is added, rounded once to the operands' dtype. Null or nothing: what is added comes after the product.
  std::optional<Value> (*plus)(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                               const Added& added) = nullptr;
};

Value product_on_cpu(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                     ElementType out);  // ops/cpu/product.cpp
// ops/cpu/library_product.cpp
Value product_with_kernels(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims, ElementType out);
std::optional<Value> sum_with_kernels(Emit& e, const Value& a, const Value& b, const hlo::DotDimensions& dims,
                                      const Added& added);

inline constexpr Product kOnCpu{product_on_cpu};
inline constexpr Product kWithKernels{product_with_kernels, sum_with_kernels};

}  // namespace tpjrt::ops
