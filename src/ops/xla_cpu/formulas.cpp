// Formulas for float32 in arithmetic that XLA:CPU vectorizes.
#include <limits>

#include "ops/pointwise/pointwise.h"
#include "ops/xla_cpu/choice.h"
#include "ops/xla_cpu/cpu_lowerings.h"

namespace tpjrt::ops {

Expression CpuLowerings::larger_of(const Expression& a, const Expression& b) const {
  if (!hlo::is_float(a.value.element())) return BackendLowerings::larger_of(a, b);
  return where((b > a) | (b != b), b, a);
}

Expression CpuLowerings::smaller_of(const Expression& a, const Expression& b) const {
  if (!hlo::is_float(a.value.element())) return BackendLowerings::smaller_of(a, b);
  return where((b < a) | (b != b), b, a);
}

// The digits of a that 1 + a loses are missing in both log(sum) and sum - 1, and cancel (Kahan).
Expression CpuLowerings::log1p(const Expression& a) const {
  if (!has_fast_way(a)) return BackendLowerings::log1p(a);
  const Expression sum = a + 1;
  return where((sum == 1) | (sum == std::numeric_limits<double>::infinity()), a, log(sum) * (a / (sum - 1)));
}

// The float64 quotient of two float32 numbers has the exact whole part as long as that has 28 bits: a fraction is at
// least 2^-24, and the whole part's product with b is exact.
Expression CpuLowerings::remainder_of(const Expression& a, const Expression& b) const {
  if (!has_fast_way(a)) return BackendLowerings::remainder_of(a, b);
  const auto slow = [](const std::vector<Expression>& operands) { return operands[0].apply("remainder", operands[1]); };
  const auto wide = [](const Expression& x) { return converted(x, ElementType::kF64); };
  const Expression quotient = wide(a) / wide(b);
  return usually(abs(quotient) > 0x1p28, {a, b}, slow, [&] {
    const Expression whole = trunc(wide(a) / wide(b)), rest = wide(a) - whole * wide(b);
    const Expression narrow = converted(rest, ElementType::kF32);
    return where(whole == 0, a,
                 where(narrow == 0, a * 0, narrow));  // also where b is infinite; a zero has the sign of a
  });
}

}  // namespace tpjrt::ops
