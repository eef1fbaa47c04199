// The divisions: true, truncating and flooring, and their remainders. Integer division by zero gives some number.
#include "ops/pointwise.h"

namespace tpjrt::ops {

namespace {

// The remainder with the sign of b. The one with the sign of a is StableHLO's.
Expression floor_remainder(const Expression& a, const Expression& b) {
  Expression r = a.apply("remainder", b);
  Expression differs = (r < 0).apply(hlo::Comparison::kNe, b < 0);
  return where((r != 0) & differs, r + b, r);
}

// Exact for floats as in Python: a - b * q is the remainder above, and q is a whole number even where a / b rounds up to
// the next one.
Expression floor_quotient(const Expression& a, const Expression& b) {
  if (!hlo::is_float(a.value.element())) {
    Expression q = a / b, r = a.apply("remainder", b);
    Expression differs = (r < 0).apply(hlo::Comparison::kNe, b < 0);
    return where((r != 0) & differs, q - 1, q);
  }
  Expression exact = (a - floor_remainder(a, b)) / b;
  Expression floor = exact.unary("floor");
  Expression whole = where((exact - floor) > 0.5, floor + 1, floor);
  Expression quotient = a / b;
  Expression zero = where(signbit(quotient), -0.0, where(isnan(quotient), quotient, 0));
  return where(b == 0, quotient, where(exact == 0, zero, whole));
}

// aten::div: rounding_mode None, "trunc" or "floor".
Values div(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression a = k("self"), b = k("other");
  const std::string mode = c.has("rounding_mode") ? c.string("rounding_mode") : "";
  if (mode == "floor") return k.give(floor_quotient(a, b));
  if (mode == "trunc" && is_floating(k)) return k.give(trunc(a / b));
  return k.give(a / b);
}

// aten::floor_divide.
Values floor_divide(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(floor_quotient(k("self"), k("other")));
}

// aten::remainder: Python's %.
Values remainder(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(floor_remainder(k("self"), k("other")));
}

}  // namespace

void add_division_rules(RuleTable& rules) {
  for (auto overload : {"aten::div.Tensor", "aten::div.Scalar", "aten::div.Tensor_mode", "aten::div.Scalar_mode"}) {
    rules.add(overload, div);
  }
  for (auto overload : {"aten::floor_divide", "aten::floor_divide.Scalar"}) rules.add(overload, floor_divide);
  for (auto overload : {"aten::fmod.Tensor", "aten::fmod.Scalar"}) rules.add(overload, binary_rule<"remainder">);
  for (auto overload : {"aten::remainder.Tensor", "aten::remainder.Scalar", "aten::remainder.Scalar_Tensor"}) {
    rules.add(overload, remainder);
  }
}

}  // namespace tpjrt::ops
