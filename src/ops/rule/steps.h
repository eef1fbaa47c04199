// Formulas that the CPU's half-precision kernels compute in steps.
#pragma once

#include "ops/rule/expression.h"

namespace tpjrt::ops {

// Returns x as the CPU's half-precision kernels keep it between steps: in the result's dtype. Other dtypes keep x
// itself.
inline Expression rounded(const Call& c, const Expression& x) {
  const ElementType element = x.e->element(c.result());
  if (element != ElementType::kF16 && element != ElementType::kBF16) return x;
  Expression y = x.with(x.e->reduce_precision(x.value, element));
  if (element == ElementType::kBF16) return y;
  // reduce_precision makes zeros of subnormal numbers, which are multiples of 2^-24.
  return where(abs(x) < 0x1p-14, (x * 0x1p24).unary("round_nearest_even") * 0x1p-24, y);
}

}  // namespace tpjrt::ops
