// Pointwise functions of one tensor: exp, sin, round, sign, nan_to_num, …
#include <cmath>
#include <limits>

#include "ops/pointwise/complex_plane.h"
#include "ops/pointwise/pointwise.h"
#include "ops/rule/limits.h"

namespace tpjrt::ops {

using hlo::Comparison;

Expression signbit(const Expression& x) {
  const bool wide = x.value.element() == ElementType::kF64;
  Value bits = x.e->bitcast_convert(x.value, {wide ? ElementType::kS64 : ElementType::kS32, x.value.dims()});
  return x.with(bits) < 0;
}

Expression copysign(const Expression& x, const Expression& sign) {
  Emit& e = *x.e;
  const int64_t width = hlo::byte_width(x.value.element());
  const ElementType element = width == 8 ? ElementType::kS64 : width == 4 ? ElementType::kS32 : ElementType::kS16;
  const Type type{element, x.value.dims()};
  const Value least = e.constant(INT64_MIN >> (64 - 8 * width), type);  // the sign bit alone
  const Value size = e.binary("and", e.bitcast_convert(x.value, type), e.unary("not", least));
  const Value bit = e.binary("and", e.bitcast_convert(sign.value, type), least);
  return x.with(e.bitcast_convert(e.binary("or", size, bit), x.value.type));
}

Expression square_root(const Expression& x) {
  return hlo::is_complex(x.value.element()) ? complex_plane::square_root(x) : x.unary("sqrt");
}

Value any(const Expression& p) {
  Dims all(p.value.dims().size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  return p.e->reduce("or", p.value, p.e->constant(0, {ElementType::kPred, {}}), all);
}

namespace {

// Ops that look at the sign alone compute in the dtype itself.
template <OpName op>
Values sign_rule(Emit& e, const Call& c) {
  const ElementType element = e.element(c.result());
  Pointwise k(e, c, hlo::byte_width(element) < 2 ? Emit::compute_element(element) : element);
  return k.give(k("self").unary(op));
}

// A complex number is infinite where either part is.
Value is_infinite(Emit& e, const Value& x) {
  if (hlo::is_complex(x.element())) {
    return e.binary("or", is_infinite(e, e.unary("real", x)), is_infinite(e, e.unary("imag", x)));
  }
  if (!hlo::is_float(x.element())) return e.zeros({ElementType::kPred, x.dims()});
  const double infinity = std::numeric_limits<double>::infinity();
  return e.compare(Comparison::kEq, e.unary("abs", x), e.splat(infinity, x.type));
}

// aten::abs: complex numbers give their modulus, which is infinite if a part is, even beside a NaN.
Values abs(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  if (hlo::is_complex(x.element())) {
    Expression modulus{&e, e.unary("abs", x)};
    const Expression infinite{&e, is_infinite(e, x)};
    return {e.as(where(infinite, std::numeric_limits<double>::infinity(), modulus).value, c.result())};
  }
  if (!hlo::is_signed_integer(x.element()) && !hlo::is_float(x.element())) return {e.as(x, c.result())};
  return sign_rule<"abs">(e, c);
}

// aten::sign: NaN and -0.0 give 0. aten::sgn: likewise, and z / |z| for complex numbers.
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

// aten::exp2.
Values exp2(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression x = k("self");
  if (!hlo::is_complex(k.element)) return k.give(x.number(2).apply("power", x));
  // Multiplies the parts separately: a product of two complex numbers is NaN where one part is infinite.
  const Expression real = x.unary("real") * M_LN2, imag = x.unary("imag") * M_LN2;
  return k.give(complex_plane::exponential(x.with(e.complex(real.value, imag.value))));
}

// aten::log2 and aten::log10.
template <int base>
Values logarithm(Emit& e, const Call& c) {
  Pointwise k(e, c);
  const double unit = std::log(static_cast<double>(base));
  Expression x = log(k("self"));
  if (!hlo::is_complex(k.element)) return k.give(x / unit);
  // Divides the parts separately: the quotient of two complex numbers is NaN where one part is infinite.
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

// aten::ceil and aten::floor: integers are whole already, in trunc and round as well.
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

// aten::nan_to_num: treats the two parts of a complex number separately.
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

// Functions made of several StableHLO ops: aten::sin and its like, aten::log1p.
template <Expression (*function)(const Expression&)>
Values function_rule(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(function(k("self")));
}

template <OpName op>
Expression xla(const Expression& x) {
  return x.unary(op);
}

// Functions with a separate formula for complex numbers.
template <Expression (*function)(const Expression&), Expression (*of_complex)(const Expression&)>
Values function_rule(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(hlo::is_complex(k.element) ? of_complex(k("self")) : function(k("self")));
}

// aten::frexp: a mantissa in [0.5, 1) and the exponent of 2. Zeros, infinities and NaN are their own mantissas.
Values frexp(Emit& e, const Call& c) {
  const Pointwise k(e, c);
  const Expression x = k("self");
  const bool wide = k.element == ElementType::kF64;
  const int64_t width = wide ? 52 : 23, field = wide ? 0x7FF : 0xFF, bias = field / 2;
  const Type type{wide ? ElementType::kS64 : ElementType::kS32, x.value.dims()};
  const auto bits_of = [&](const Expression& y) { return y.with(e.bitcast_convert(y.value, type)); };
  const auto masked = [&](const Expression& y, int64_t mask) {
    return y.with(e.binary("and", y.value, e.constant(mask, type)));
  };
  const auto exponent_of = [&](const Expression& y) {
    return masked(y.apply("shift_right_logical", y.number(static_cast<double>(width))), field);
  };
  const Expression given = bits_of(x), fraction = masked(given, (int64_t{1} << width) - 1);
  const Expression stored = exponent_of(given);
  // A subnormal number is its fraction, as an integer, times a power of 2.
  const Expression subnormal = (stored == 0) & (fraction != 0);
  const Expression bits = where(subnormal, bits_of(x.with(e.convert(fraction.value, k.element))), given);
  const Expression half = bits.with(e.constant((bias - 1) << width, type));
  const Expression size = masked(bits, (int64_t{1} << width) - 1).apply("or", half);
  const Expression mantissa = copysign(x.with(e.bitcast_convert(size.value, x.value.type)), x);
  const Expression exponent = exponent_of(bits) - static_cast<double>(bias - 1);
  const auto least = static_cast<double>(1 - bias - width);
  const Expression special = ((stored == 0) & (fraction == 0)) | (stored == static_cast<double>(field));
  return k.give(where(special, x, mantissa), where(special, 0, where(subnormal, exponent + least, exponent)));
}

}  // namespace

void add_unary_rules(RuleTable& rules) {
  rules.add("aten::abs", abs);
  rules.add("aten::acos", function_rule<arccosine, complex_plane::arccosine>);
  rules.add("aten::acosh", function_rule<xla<"chlo.acosh">, complex_plane::hyperbolic_arccosine>);
  rules.add("aten::asin", function_rule<arcsine, complex_plane::arcsine>);
  rules.add("aten::asinh", function_rule<xla<"chlo.asinh">, complex_plane::hyperbolic_arcsine>);
  rules.add("aten::atan", function_rule<arctangent, complex_plane::arctangent>);
  rules.add("aten::atanh", function_rule<hyperbolic_arctangent, complex_plane::hyperbolic_arctangent>);
  rules.add("aten::ceil", rounding<"ceil">, kReals);
  rules.add("aten::cos", function_rule<cosine, complex_plane::cosine>);
  rules.add("aten::cosh", function_rule<xla<"chlo.cosh">, complex_plane::hyperbolic_cosine>);
  rules.add("aten::deg2rad", deg2rad);
  rules.add("aten::exp", function_rule<exp, complex_plane::exponential>);
  rules.add("aten::exp2", exp2, kByAten);
  rules.add("aten::expm1", unary_rule<"exponential_minus_one">);
  rules.add("aten::floor", rounding<"floor">, kReals);
  rules.add("aten::frac", frac, kFloats);
  rules.add("aten::frexp.Tensor", frexp, kFloats);
  rules.add("aten::isinf", isinf);
  rules.add("aten::isnan", isnan_rule);
  rules.add("aten::isneginf", is_infinity<true>);
  rules.add("aten::isposinf", is_infinity<false>);
  rules.add("aten::log", unary_rule<"log">);
  rules.add("aten::log10", logarithm<10>);
  rules.add("aten::log1p", function_rule<log1p>);
  rules.add("aten::log2", logarithm<2>);
  rules.add("aten::nan_to_num", nan_to_num);
  rules.add("aten::neg", sign_rule<"negate">);
  rules.add("aten::rad2deg", rad2deg);
  rules.add("aten::reciprocal", reciprocal);
  rules.add("aten::round", rounding<"round_nearest_even">, kReals);
  rules.add("aten::round.decimals", round_decimals, kFloats);
  rules.add("aten::rsqrt", unary_rule<"rsqrt">);
  rules.add("aten::sgn", sign);
  rules.add("aten::sign", sign);
  rules.add("aten::signbit", signbit_rule);
  rules.add("aten::sin", function_rule<sine, complex_plane::sine>);
  rules.add("aten::sinh", function_rule<xla<"chlo.sinh">, complex_plane::hyperbolic_sine>);
  rules.add("aten::sqrt", function_rule<square_root>);
  rules.add("aten::tan", function_rule<tangent>);
  rules.add("aten::tanh", unary_rule<"tanh">);
  rules.add("aten::trunc", trunc_rule, kReals);
}

}  // namespace tpjrt::ops
