// Pointwise arithmetic of two and three operands: add, mul, pow, lerp, hypot, xlogy, …; and the whole family's table.
#include <cmath>
#include <limits>
#include <optional>

#include "ops/pointwise/complex_plane.h"
#include "ops/pointwise/pointwise.h"
#include "ops/rule/expression.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {

namespace {

// Returns x times the Scalar `name`, which most often is 1.
Expression scaled(const Pointwise& k, const Call& c, const Expression& x, std::string_view name) {
  return is_now(c, name, 1) ? x : x * k.scalar(name);
}

// aten::add: self + alpha * other; for bools it is "or".
Values add(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(k("self") + scaled(k, c, k("other"), "alpha"));
}

void check_subtraction(const Call& c) {
  for (const std::string_view name : {"self", "other"}) {
    const Argument& a = c.argument(name);
    const bool is_bool = a.kind == Argument::Kind::kTensor ? a.tensors.at(0).element() == ElementType::kPred
                                                           : a.scalars.at(0).isBoolean();
    if (is_bool) throw Mistake("a subtraction of bools");
  }
}

// Returns how the result was computed from a tensor of its sizes and a smaller one, if it was.
std::optional<Emit::Applied> applied(const Call& c, const Value& result) {
  for (const std::string_view name : {"self", "other"}) {
    if (c.argument(name).kind != Argument::Kind::kTensor) return {};
  }
  const Value x = c.tensor("self"), by = c.tensor("other");
  if (x.dims() != result.dims() || by.dims() == x.dims()) return {};
  return Emit::Applied{x, by};
}

// aten::sub: self - alpha * other.
Values sub(Emit& e, const Call& c) {
  check_subtraction(c);
  Pointwise k(e, c);
  Values result = k.give(k("self") - scaled(k, c, k("other"), "alpha"));
  if (is_now(c, "alpha", 1)) {
    if (const auto how = applied(c, result[0])) e.set_shifted(result[0], *how);
  }
  return result;
}

// aten::mul
Values mul(Emit& e, const Call& c) {
  Values result = binary_rule<"multiply">(e, c);
  if (const auto how = applied(c, result[0])) e.set_scaled(result[0], *how);
  return result;
}

// aten::rsub: other - alpha * self.
Values rsub(Emit& e, const Call& c) {
  check_subtraction(c);
  Pointwise k(e, c);
  return k.give(k("other") - scaled(k, c, k("self"), "alpha"));
}

// Returns x^n by squaring. It wraps as the product of n numbers does.
Expression whole_power(const Expression& x, int64_t n) {
  Expression result = x.number(1), square = x;
  for (bool first = true; n > 0; n /= 2) {
    if (n % 2 == 1) result = first ? square : result * square;
    first = first && n % 2 == 0;
    if (n > 1) square = square * square;
  }
  return result;
}

// Returns x^n for a tensor of exponents, in a loop until the largest is used up: XLA's own integer power reads only
// six bits of it. A negative exponent gives 0, except for 1 and -1.
Expression integer_power(const Expression& x, const Expression& n) {
  Emit& e = *x.e;
  auto lift = [&](const Value& value) { return Expression{&e, value}; };
  Values last = e.while_loop(
      {x.number(1).value, x.value, n.value}, [&](const Values& state) -> Values { return {any(lift(state[2]) > 0)}; },
      [&](const Values& state) -> Values {
        Expression result = lift(state[0]), square = lift(state[1]), left = lift(state[2]);
        Expression odd = left.apply("and", left.number(1)) == 1;
        return {where(odd & (left > 0), result * square, result).value, (square * square).value,
                left.apply("shift_right_logical", where(left > 0, left.number(1), left.number(0))).value};
      });
  Expression power = lift(last[0]);
  if (!hlo::is_signed_integer(x.value.element())) return power;
  Expression odd = n.apply("and", n.number(1)) == 1;
  Expression inverse = where(x == 1, 1, where(x == -1, where(odd, -1, x.number(1)), x.number(0)));
  return where(n < 0, inverse, power);
}

// aten::pow: common exponents are multiplied out, as in torch.
Values pow(Emit& e, const Call& c) {
  Pointwise k(e, c);
  if (k.element == ElementType::kPred) throw Mistake("powers of bools");
  Expression x = k("self");
  if (hlo::is_integer(k.element)) {
    const bool is_number = c.argument("exponent").kind == Argument::Kind::kScalar;
    const int64_t n = is_number && !c.argument("exponent").varies ? c.constant_scalar("exponent").toLong() : -1;
    return k.give(n >= 0 ? whole_power(x, n) : integer_power(x, k("exponent")));
  }
  for (int n : {1, 2, 3}) {
    if (is_now(c, "exponent", n)) return k.give(whole_power(x, n));
    if (n < 3 && is_now(c, "exponent", -n)) return k.give(1 / whole_power(x, n));
  }
  // torch computes the power one half as a square root, which is -0.0 for -0.0 and NaN for -inf; but not in float16.
  const bool has_roots = e.element(c.result()) != ElementType::kF16;
  if (has_roots && is_now(c, "exponent", 0.5)) return k.give(square_root(x));
  if (hlo::is_complex(k.element)) return k.give(complex_plane::power(x, k("exponent")));
  if (has_roots && is_now(c, "exponent", -0.5)) return k.give(1 / square_root(x));
  Expression power = x.apply("power", k("exponent"));
  if (has_roots && c.argument("exponent").kind == Argument::Kind::kScalar && c.argument("exponent").varies) {
    const Expression n = k.scalar("exponent"), root = square_root(x);
    power = where(abs(n) == 0.5, where(n > 0, root, 1 / root), power);
  }
  // XLA rewrites log(pow(x, n)) to n log|x|, which isn't NaN below 0. A select that changes nothing prevents that.
  return k.give(where(power == power, power, std::numeric_limits<double>::quiet_NaN()));
}

// aten::addcmul: self + value * tensor1 * tensor2.
Values addcmul(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(k("self") + scaled(k, c, k("tensor1"), "value") * k("tensor2"));
}

// aten::addcdiv: self + value * tensor1 / tensor2.
Values addcdiv(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(k("self") + scaled(k, c, k("tensor1"), "value") / k("tensor2"));
}

// aten::lerp: computed from the nearer end, so weights 0 and 1 give the ends exactly.
Values lerp(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression start = k("self"), end = k("end"), weight = k("weight");
  Expression size = hlo::is_complex(k.element) ? weight.unary("abs") : abs(weight);
  return k.give(where(size < 0.5, start + weight * (end - start), end - (end - start) * (1 - weight)));
}

// aten::hypot: the squares don't overflow.
Values hypot(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression a = abs(k("self")), b = abs(k("other"));
  Expression high = maximum(a, b), low = minimum(a, b), ratio = low / high;
  Expression length = where(high == 0, high, high * (1 + ratio * ratio).unary("sqrt"));
  const double infinity = std::numeric_limits<double>::infinity();
  // Infinities are handled separately: the result is infinite even if the other operand is NaN.
  return k.give(where((a == infinity) | (b == infinity), infinity, where(isnan(a) | isnan(b), a + b, length)));
}

// aten::logaddexp and aten::logaddexp2: log(base^a + base^b) without overflow.
template <bool base_two>
Values logaddexp(Emit& e, const Call& c) {
  Pointwise k(e, c);
  if (!is_floating(k)) throw Unsupported("logaddexp of complex numbers");
  Expression a = k("self"), b = k("other");
  const double scale = base_two ? M_LN2 : 1;
  Expression sum = maximum(a, b) + log1p(exp(-(abs(a - b) * scale))) / scale;
  // Equal infinities have no difference.
  return k.give(where((a == b) & (abs(a) == std::numeric_limits<double>::infinity()), a, sum));
}

// aten::xlogy and aten::special_xlog1py: x * log(y), and 0 where x is 0 unless y is NaN.
template <OpName logarithm>
Values xlogy(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression x = k("self"), y = k("other");
  return k.give(where(isnan(y), y, where(x == 0, 0, x * y.unary(logarithm))));
}

// aten::copysign
Values copysign_rule(Emit& e, const Call& c) {
  Pointwise k(e, c, e.element(c.result()));
  return k.give(copysign(k("self"), k("other")));
}

// aten::ldexp: self * 2^other. With floating exponents the power has their dtype, in which it may be infinite. With
// integers there is no such dtype: the exponent is taken in thirds, so that the powers are finite wherever the result
// is.
Values ldexp(Emit& e, const Call& c) {
  Pointwise k(e, c);
  const auto power = [](const Expression& x) { return x.number(2).apply("power", x); };
  const Expression exponent = k("other");
  const ElementType given = e.element(c.type("other"));
  if (hlo::is_float(given) && is_floating(k)) {
    const Expression exact = power(exponent);
    return k.give(k("self") * exact.with(e.convert(e.convert(exact.value, given), k.element)));
  }
  if (!is_floating(k) || !hlo::is_float(e.element(c.type("self")))) return k.give(k("self") * power(exponent));
  const double most = k.element == ElementType::kF64 ? 1022 : 126;
  const Expression third = maximum(minimum((exponent * (1.0 / 3)).unary("floor"), most), -most);
  const Expression rest = maximum(minimum(exponent - third * 2, most), -most), part = power(third);
  return k.give(k("self") * part * part * power(rest));
}

// aten::heaviside.
Values heaviside(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression x = k("self");
  Expression step = where(x > x.number(0), x.number(1), x.number(0));
  return k.give(where(x == x.number(0), k("values"), step));
}

// aten::nextafter: steps are those of the dtype itself.
Values nextafter(Emit& e, const Call& c) {
  Pointwise k(e, c, e.element(c.result()));
  return k.give(k("self").apply("chlo.next_after", k("other")));
}

// Runs Euclid's algorithm for all elements until the last one is done.
Expression greatest_common_divisor(const Expression& a, const Expression& b) {
  Emit& e = *a.e;
  const bool is_signed = hlo::is_signed_integer(a.value.element());
  auto size = [&](const Expression& x) { return is_signed ? abs(x).value : x.value; };
  auto remaining = [&](const Value& y) { return Expression{&e, y} != 0; };
  Values result = e.while_loop(
      {size(a), size(b)}, [&](const Values& state) -> Values { return {any(remaining(state[1]))}; },
      [&](const Values& state) -> Values {
        Expression x{&e, state[0]}, y{&e, state[1]}, left = remaining(state[1]);
        return {where(left, y, x).value, where(left, x.apply("remainder", where(left, y, y.number(1))), y).value};
      });
  return a.with(result[0]);
}

// aten::gcd.
Values gcd(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(greatest_common_divisor(k("self"), k("other")));
}

// aten::lcm: narrow integers are multiplied as int, as in C.
Values lcm(Emit& e, const Call& c) {
  const ElementType element = e.element(c.result());
  Pointwise k(e, c, hlo::byte_width(element) < 4 ? ElementType::kS32 : element);
  Expression a = k("self"), b = k("other"), divisor = greatest_common_divisor(a, b);
  Expression multiple = a / where(divisor == 0, 1, divisor) * b;
  return k.give(hlo::is_signed_integer(k.element) ? abs(multiple) : multiple);
}

// aten::atan2: the angle of (other, self).
Values atan2(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(angle_of(k("self"), k("other")));
}

}  // namespace

void add_arithmetic_rules(RuleTable& rules) {
  for (auto overload : {"aten::add.Tensor", "aten::add.Scalar"}) rules.add(overload, add);
  rules.add("aten::addcdiv", addcdiv);
  rules.add("aten::addcmul", addcmul, kNotBools);
  rules.add("aten::atan2", atan2);
  for (auto overload : {"aten::copysign.Tensor", "aten::copysign.Scalar"}) rules.add(overload, copysign_rule);
  rules.add("aten::gcd", gcd, kByAten, kIntegers);
  rules.add("aten::heaviside", heaviside);
  rules.add("aten::hypot", hypot, kFloats);
  rules.add("aten::lcm", lcm, kByAten, kIntegers);
  rules.add("aten::ldexp.Tensor", ldexp);
  for (auto overload : {"aten::lerp.Scalar", "aten::lerp.Tensor"}) rules.add(overload, lerp, kInexact);
  rules.add("aten::logaddexp", logaddexp<false>, kInexact);
  rules.add("aten::logaddexp2", logaddexp<true>, kInexact);
  for (auto overload : {"aten::mul.Tensor", "aten::mul.Scalar"}) rules.add(overload, mul);
  rules.add("aten::nextafter", nextafter, kFloats);
  for (auto overload : {"aten::pow.Tensor_Tensor", "aten::pow.Scalar"}) rules.add(overload, pow, kIntegersByAten);
  rules.add("aten::pow.Tensor_Scalar", pow);
  for (auto overload : {"aten::rsub.Tensor", "aten::rsub.Scalar"}) rules.add(overload, rsub);
  for (auto overload :
       {"aten::special_xlog1py", "aten::special_xlog1py.other_scalar", "aten::special_xlog1py.self_scalar"}) {
    rules.add(overload, xlogy<"log_plus_one">, kNotComplex);
  }
  for (auto overload : {"aten::sub.Tensor", "aten::sub.Scalar"}) rules.add(overload, sub);
  for (auto overload : {"aten::xlogy.Tensor", "aten::xlogy.Scalar_Other", "aten::xlogy.Scalar_Self"}) {
    rules.add(overload, xlogy<"log">, kNotComplex);
  }
}

void add_pointwise_rules(RuleTable& rules) {
  add_unary_rules(rules);
  add_arithmetic_rules(rules);
  add_division_rules(rules);
  add_comparison_rules(rules);
  add_bitwise_rules(rules);
  add_conversion_rules(rules);
}

}  // namespace tpjrt::ops
