// Matrix and vector products, by platform.
#pragma once

#include <optional>

#include "ops/rule/emit.h"

namespace tpjrt::ops {

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
