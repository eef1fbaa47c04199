// Division (true, truncating and flooring) and its remainders. Integer division by zero is raised when results are
// read, like an index out of range.
#include "ops/pointwise/pointwise.h"
#include "ops/rule/expression.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {

namespace {

// Rounds x to the result's dtype as the CPU does, except by a divisor of one element, which the CPU takes in single
// precision.
Expression rounded_step(const Call& c, const Expression& x) {
  const Argument& other = c.argument("other");
  const bool one = other.kind == Argument::Kind::kScalar || c.tensor("other").type.elements() == 1;
  return one ? x : rounded(c, x);
}

// Returns the argument "other". If integers are divided it must have no zeros, which is checked here for a Scalar
// that does not vary.
Expression divisor(Emit& e, const Call& c, const Pointwise& k) {
  Expression b = k("other");
  const Argument& other = c.argument("other");
  const bool is_scalar = other.kind == Argument::Kind::kScalar;
  if (!hlo::is_integer(k.element) || e.type_of(c.result()).elements() == 0) return b;
  if (is_scalar && !other.varies && other.scalars.at(0).toLong() != 0) return b;
  Value divisors = is_scalar ? c.scalar(e, "other", k.element) : c.tensor("other");
  Value is_zero = e.compare(hlo::Comparison::kEq, divisors, e.zeros(divisors.type));
  e.require(e.convert(is_zero, ElementType::kS32), 0, 1, "ZeroDivisionError", false);
  return b;
}

// Returns whether the truncated quotient is above the floor. The remainder r of a / b has the sign of a; the flooring
// quotient and its remainder differ where that is not the sign of b.
Expression is_above_floor(const Expression& r, const Expression& b) {
  return (r != 0) & (r < 0).apply(hlo::Comparison::kNe, b < 0);
}

Expression floor_remainder(const Expression& a, const Expression& b) {
  Expression r = remainder_of(a, b);
  return where(is_above_floor(r, b), r + b, r);
}

// The result is exact for floats, as in Python: a - r is a whole multiple of b, even where a / b rounds up to the
// next number.
Expression floor_quotient(const Call& c, const Expression& a, const Expression& b) {
  const auto step = [&](const Expression& x) { return rounded_step(c, x); };
  Expression r = remainder_of(a, b), above = is_above_floor(r, b);
  if (!hlo::is_float(a.value.element())) {
    Expression q = a / b;
    return where(above, q - 1, q);
  }
  Expression multiple = step(step(a - r) / b), q = where(above, step(multiple - 1), multiple);
  Expression floor = q.unary("floor");
  Expression whole = where((q - floor) > 0.5, floor + 1, floor);
  Expression quotient = step(a / b);
  Expression zero = where(signbit(quotient), -0.0, quotient.number(0));
  return where(b == 0, quotient, where(q == 0, zero, whole));
}

// aten::div: rounding_mode None, "trunc" or "floor".
Values div(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression a = k("self"), b = divisor(e, c, k);
  const std::string mode = c.has("rounding_mode") ? c.string("rounding_mode") : "";
  const bool has_order = hlo::is_float(k.element) || hlo::is_integer(k.element);
  if (!mode.empty() && !has_order) throw Mistake("quotients of bools and complex numbers are not rounded");
  if (mode == "floor") return k.give(floor_quotient(c, a, b));
  if (mode == "trunc" && is_floating(k)) return k.give(trunc(rounded_step(c, a / b)));
  return k.give(a / b);
}

// aten::floor_divide.
Values floor_divide(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(floor_quotient(c, k("self"), divisor(e, c, k)));
}

// aten::fmod: the result has the sign of self.
Values fmod(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(remainder_of(k("self"), rounded(c, divisor(e, c, k))));
}

// aten::remainder: Python's %.
Values remainder(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(floor_remainder(rounded(c, k("self")), rounded(c, divisor(e, c, k))));
}

}  // namespace

void add_division_rules(RuleTable& rules) {
  for (auto overload : {"aten::div.Tensor", "aten::div.Scalar", "aten::div.Tensor_mode", "aten::div.Scalar_mode"}) {
    rules.add(overload, div);
  }
  for (auto overload : {"aten::floor_divide", "aten::floor_divide.Scalar"}) rules.add(overload, floor_divide);
  for (auto overload : {"aten::fmod.Tensor", "aten::fmod.Scalar"}) rules.add(overload, fmod);
  for (auto overload : {"aten::remainder.Tensor", "aten::remainder.Scalar", "aten::remainder.Scalar_Tensor"}) {
    rules.add(overload, remainder);
  }
}

}  // namespace tpjrt::ops
