// Formulas for float32 in arithmetic that XLA:CPU vectorizes. Sines, cosines and angles as polynomials: the argument
// less the nearest multiple of pi / 2 is within pi / 4.
#include <cmath>
#include <functional>
#include <limits>

#include "ops/pointwise/pointwise.h"
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

namespace {

// Below this, a float's quotient by pi / 2 has 22 bits, so its product with the 31 bits of kHigh is exact in float64.
constexpr double kLargest = 1 << 22;
constexpr double kHigh = 0x1.921fb544p+0, kLow = 0x1.0b4611a626331p-34;  // pi / 2

// Returns cosine and sine of x within pi / 4, with coefficients of Cephes' sinf.c, good to a unit in the last place.
CosineAndSine near_zero(const Expression& x) {
  const Expression z = x * x;
  const Expression sine = ((z * -1.9515295891e-4 + 8.3321608736e-3) * z - 1.6666654611e-1) * z * x + x;
  const Expression cosine =
      ((z * 2.443315711809948e-5 - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z - z * 0.5 + 1;
  return {cosine, sine};
}

// Returns cosine and sine of `rest` plus `quarters` quarter turns (s32).
CosineAndSine rotated(const Expression& rest, const Expression& quarters) {
  const auto [c, s] = near_zero(rest);
  const auto bit = [&](const Expression& x, double mask) { return x.apply("and", x.number(mask)) != 0; };
  const Expression odd = bit(quarters, 1);
  const Expression cosine = where(odd, s, c), sine = where(odd, c, s);
  return {where(bit(quarters + 1, 2), -cosine, cosine), where(bit(quarters, 2), -sine, sine)};
}

// Returns the arctangent of x in [0, 1], with coefficients of Cephes' atanf.c.
Expression arctangent_within_one(const Expression& x) {
  const Expression far = x > M_SQRT2 - 1;  // then the result is pi / 4 and the rest's
  const Expression near = where(far, (x - 1) / (x + 1), x), z = near * near;
  const Expression result =
      (((z * 8.05374449538e-2 - 1.38776856032e-1) * z + 1.99777106478e-1) * z - 3.33329491539e-1) * z * near + near;
  return where(far, result + M_PI_4, result);
}

CosineAndSine of_radians(const Expression& x) {
  const Expression wide = converted(x, ElementType::kF64);
  const Expression quarters = (wide * M_2_PI).unary("round_nearest_even");
  const Expression rest = wide - quarters * kHigh - quarters * kLow;
  return rotated(converted(rest, ElementType::kF32), converted(quarters, ElementType::kS32));
}

// Returns `fast` where no element is too large for it, else XLA's own op.
Expression chosen(const Expression& x, std::string_view op, const std::function<Expression()>& fast) {
  if (!has_fast_way(x)) return x.unary(op);
  const auto slow = [&](const std::vector<Expression>& operands) { return operands[0].unary(op); };
  return usually(abs(x) > kLargest, {x}, slow, fast);
}

}  // namespace

CosineAndSine CpuLowerings::of_turns(const Expression& x) const {
  if (!has_fast_way(x)) return BackendLowerings::of_turns(x);
  const Expression quarters = (x * 4).unary("round_nearest_even");
  return rotated((x - quarters * 0.25) * (2 * M_PI), converted(quarters, ElementType::kS32));
}

Expression CpuLowerings::cosine(const Expression& x) const {
  return chosen(x, "cosine", [&] { return of_radians(x).cosine; });
}

Expression CpuLowerings::sine(const Expression& x) const {
  return chosen(x, "sine", [&] { return where(x == 0, x, of_radians(x).sine); });  // keeps -0.0
}

Expression CpuLowerings::tangent(const Expression& x) const {
  return chosen(x, "tan", [&] {
    const auto [c, s] = of_radians(x);
    return where(x == 0, x, s / c);
  });
}

Expression CpuLowerings::angle_of(const Expression& y, const Expression& x) const {
  if (!has_fast_way(x)) {
    const Expression angle = BackendLowerings::angle_of(y, x);
    // LLVM folds the angle of two constant zeros to NaN.
    return where((x == 0) & (y == 0), copysign(where(signbit(x), M_PI, x.number(0)), y), angle);
  }
  const Expression across = abs(x), up = abs(y), larger = maximum(across, up);
  // (0, 0) and two infinities have no quotient.
  const Expression slope = where(across == up, where(larger == 0, 0, x.number(1)), minimum(across, up) / larger);
  const Expression octant = arctangent_within_one(slope);
  const Expression quadrant = where(up > across, M_PI_2 - octant, octant);
  const Expression half = where(signbit(x), M_PI - quadrant, quadrant);
  return where(signbit(y), -half, half);
}

namespace {

// Returns the arcsine of |x| below 1 / 2, and above it that of sqrt((1 - |x|) / 2), which is half of the rest to pi /
// 2. The coefficients are those of Cephes' asinf.c. Returns NaN above 1.
Expression half_or_whole_arcsine(const Expression& size, const Expression& far) {
  const Expression z = where(far, (1 - size) * 0.5, size * size), root = where(far, z.unary("sqrt"), size);
  const Expression terms = (((z * 4.2163199048e-2 + 2.4181311049e-2) * z + 4.5470025998e-2) * z + 7.4953002686e-2) * z;
  return (terms + 1.6666752422e-1) * z * root + root;
}

}  // namespace

Expression CpuLowerings::arcsine(const Expression& x) const {
  if (!has_fast_way(x)) return BackendLowerings::arcsine(x);
  const Expression size = abs(x), far = size > 0.5, angle = half_or_whole_arcsine(size, far);
  return copysign(where(far, M_PI_2 - angle * 2, angle), x);
}

Expression CpuLowerings::arccosine(const Expression& x) const {
  if (!has_fast_way(x)) return BackendLowerings::arccosine(x);
  const Expression size = abs(x), far = size > 0.5, angle = half_or_whole_arcsine(size, far);
  return where(far, where(x < 0, M_PI - angle * 2, angle * 2), M_PI_2 - copysign(angle, x));
}

// Computes with |x|: near -1 the quotient would lose its digits.
Expression CpuLowerings::hyperbolic_arctangent(const Expression& x) const {
  if (!has_fast_way(x)) return BackendLowerings::hyperbolic_arctangent(x);
  const Expression size = abs(x);
  return copysign(log1p(size * 2 / (1 - size)) * 0.5, x);
}

Expression CpuLowerings::arctangent(const Expression& x) const {
  return has_fast_way(x) ? angle_of(x, x.number(1)) : BackendLowerings::arctangent(x);
}

}  // namespace tpjrt::ops
