// Pointwise functions of one tensor: exp, sin, round, sign, nan_to_num, …
#include <cmath>
#include <limits>

#include "ops/limits.h"
#include "ops/pointwise.h"
#include "ops/trigonometry.h"

namespace tpjrt::ops {

using hlo::Comparison;

Expression signbit(const Expression& x) {
  const bool wide = x.value.element() == ElementType::kF64;
  Value bits = x.e->bitcast_convert(x.value, {wide ? ElementType::kS64 : ElementType::kS32, x.value.dims()});
  return x.with(bits) < 0;
}

Value any(const Expression& p) {
  Dims all(p.value.dims().size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  return p.e->reduce("or", p.value, p.e->constant(0, {ElementType::kPred, {}}), all);
}

namespace {

// A complex number is infinite where either part is.
Value is_infinite(Emit& e, const Value& x) {
  if (hlo::is_complex(x.element())) {
    return e.binary("or", is_infinite(e, e.unary("real", x)), is_infinite(e, e.unary("imag", x)));
  }
  if (!hlo::is_float(x.element())) return e.zeros({ElementType::kPred, x.dims()});
  const double infinity = std::numeric_limits<double>::infinity();
  return e.compare(Comparison::kEq, e.unary("abs", x), e.splat(infinity, x.type));
}

// aten::abs: complex numbers give their modulus, which is infinite where a part is, even beside a NaN.
Values abs(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  if (hlo::is_complex(x.element())) {
    Expression modulus{&e, e.unary("abs", x)};
    const Expression infinite{&e, is_infinite(e, x)};
    return {e.as(where(infinite, std::numeric_limits<double>::infinity(), modulus).value, c.result())};
  }
  if (!hlo::is_signed_integer(x.element()) && !hlo::is_float(x.element())) return {e.as(x, c.result())};
  return unary_rule<"abs">(e, c);
}

// aten::sign: NaN and -0.0 give 0. aten::sgn: the same, and z / |z| of complex numbers.
Values sign(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression x = k("self");
  if (k.element == ElementType::kPred) return k.give(x);
  if (hlo::is_unsigned_integer(k.element)) return k.give(x != 0);
  if (is_floating(k)) return k.give(where(x < 0, -1, where(x > 0, x.number(1), x.number(0))));
  return k.give(x.unary("sign"));
}

// aten::signbit.
Values signbit_rule(Emit& e, const Call& c) {
  const ElementType element = Emit::compute_element(c.tensor("self").element());
  Pointwise k(e, c, element);
  Expression x = k("self");
  if (hlo::is_float(element)) return k.give(signbit(x));
  return k.give(element == ElementType::kPred ? x.number(0) : x < 0);
}

// aten::reciprocal.
Values reciprocal(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(1 / k("self"));
}

// aten::exp: of a complex number with an infinite real part as C's cexp, whatever the imaginary part is.
Values exp_rule(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression x = k("self"), y = exp(x);
  if (!hlo::is_complex(k.element)) return k.give(y);
  const double infinity = std::numeric_limits<double>::infinity();
  Expression real = x.unary("real"), without_angle = !x.unary("imag").unary("is_finite");
  Expression vanishes = without_angle & (real == -infinity), grows = without_angle & (real == infinity);
  Value real_part = where(vanishes, 0, where(grows, infinity, y.unary("real"))).value;
  return k.give(y.with(e.complex(real_part, where(vanishes, 0, y.unary("imag")).value)));
}

// aten::exp2.
Values exp2(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression x = k("self");
  return k.give(hlo::is_complex(k.element) ? exp(x * M_LN2) : x.number(2).apply("power", x));
}

// aten::log2 and aten::log10.
template <int base>
Values logarithm(Emit& e, const Call& c) {
  Pointwise k(e, c);
  const double unit = std::log(static_cast<double>(base));
  Expression x = log(k("self"));
  if (!hlo::is_complex(k.element)) return k.give(x / unit);
  // Part by part: the quotient of two complex numbers is NaN where one part is infinite.
  return k.give(x.with(e.complex((x.unary("real") / unit).value, (x.unary("imag") / unit).value)));
}

// aten::deg2rad and aten::rad2deg.
Values deg2rad(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(k("self") * (M_PI / 180));
}

Values rad2deg(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(k("self") * (180 / M_PI));
}

// aten::ceil and aten::floor: integers are whole already. So in trunc and round.
template <OpName op>
Values rounding(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(is_floating(k) ? k("self").unary(op) : k("self"));
}

Values trunc_rule(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(is_floating(k) ? trunc(k("self")) : k("self"));
}

// aten::frac: keeps the sign of x.
Values frac(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression x = k("self");
  return k.give(x - trunc(x));
}

// aten::round.decimals: half to even after scaling by a power of ten.
Values round_decimals(Emit& e, const Call& c) {
  const int64_t decimals = c.integer("decimals");
  if (decimals == 0) return rounding<"round_nearest_even">(e, c);
  Pointwise k(e, c);
  if (!is_floating(k)) throw Unsupported("rounding of integers to decimals");
  Expression x = k("self");
  const double scale = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  if (decimals > 0) return k.give((x * scale).unary("round_nearest_even") / scale);
  return k.give((x / scale).unary("round_nearest_even") * scale);
}

// aten::isnan.
Values isnan_rule(Emit& e, const Call& c) { return {e.isnan(c.tensor("self"))}; }

// aten::isinf.
Values isinf(Emit& e, const Call& c) { return {is_infinite(e, c.tensor("self"))}; }

// aten::isposinf and aten::isneginf.
template <bool negative>
Values is_infinity(Emit& e, const Call& c) {
  const double infinity = std::numeric_limits<double>::infinity();
  Value x = c.tensor("self");
  if (!hlo::is_float(x.element())) return {e.zeros(e.type_of(c.result()))};
  return {e.compare(Comparison::kEq, x, e.splat(negative ? -infinity : infinity, x.type))};
}

// aten::nan_to_num: the two parts of a complex number one by one.
Values nan_to_num(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  if (!hlo::is_float(x.element()) && !hlo::is_complex(x.element())) return {e.as(x, c.result())};
  const double infinity = std::numeric_limits<double>::infinity();
  const double limit = largest_finite(hlo::real_element(x.element()));
  const double nan_value = c.optional_real("nan").value_or(0);
  const double high = c.optional_real("posinf").value_or(limit), low = c.optional_real("neginf").value_or(-limit);
  auto replace = [&](const Value& part) {
    Expression y{&e, part};
    return where(isnan(y), nan_value, where(y == infinity, high, where(y == -infinity, low, y))).value;
  };
  if (hlo::is_complex(x.element())) return {e.complex(replace(e.unary("real", x)), replace(e.unary("imag", x)))};
  return {e.as(replace(x), c.result())};
}

// Functions that are more than an op of StableHLO: aten::sin and its like, aten::log1p.
template <Expression (*function)(const Expression&)>
Values function_rule(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(function(k("self")));
}

}  // namespace

void add_unary_rules(RuleTable& rules) {
  rules.add("aten::abs", abs);
  rules.add("aten::acos", function_rule<arccosine>);
  rules.add("aten::acosh", unary_rule<"chlo.acosh">);
  rules.add("aten::asin", function_rule<arcsine>);
  rules.add("aten::asinh", unary_rule<"chlo.asinh">);
  rules.add("aten::atan", function_rule<arctangent>);
  rules.add("aten::atanh", unary_rule<"chlo.atanh">);
  rules.add("aten::ceil", rounding<"ceil">);
  rules.add("aten::cos", function_rule<cosine>);
  rules.add("aten::cosh", unary_rule<"chlo.cosh">);
  rules.add("aten::deg2rad", deg2rad);
  rules.add("aten::exp", exp_rule);
  rules.add("aten::exp2", exp2);
  rules.add("aten::expm1", unary_rule<"exponential_minus_one">);
  rules.add("aten::floor", rounding<"floor">);
  rules.add_for_floats("aten::frac", frac);
  rules.add("aten::isinf", isinf);
  rules.add("aten::isnan", isnan_rule);
  rules.add("aten::isneginf", is_infinity<true>);
  rules.add("aten::isposinf", is_infinity<false>);
  rules.add("aten::log", unary_rule<"log">);
  rules.add("aten::log10", logarithm<10>);
  rules.add("aten::log1p", function_rule<log1p>);
  rules.add("aten::log2", logarithm<2>);
  rules.add("aten::nan_to_num", nan_to_num);
  rules.add("aten::neg", unary_rule<"negate">);
  rules.add("aten::rad2deg", rad2deg);
  rules.add("aten::reciprocal", reciprocal);
  rules.add_for_reals("aten::round", rounding<"round_nearest_even">);
  rules.add_for_real_floats("aten::round.decimals", round_decimals);
  rules.add("aten::rsqrt", unary_rule<"rsqrt">);
  rules.add("aten::sgn", sign);
  rules.add("aten::sign", sign);
  rules.add("aten::signbit", signbit_rule);
  rules.add("aten::sin", function_rule<sine>);
  rules.add("aten::sinh", unary_rule<"chlo.sinh">);
  rules.add("aten::sqrt", unary_rule<"sqrt">);
  rules.add("aten::tan", function_rule<tangent>);
  rules.add("aten::tanh", unary_rule<"tanh">);
  rules.add("aten::trunc", trunc_rule);
}

}  // namespace tpjrt::ops
