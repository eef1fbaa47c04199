// Comparisons, logic, maximum and minimum, clamp, where. Bitwise ops and shifts of integers and bools. Copies and
// conversions, and ops that make complex numbers or take them apart.
#include <cmath>

#include "ops/pointwise/pointwise.h"

namespace tpjrt::ops {

namespace {

using hlo::Comparison;

// aten::eq and its kin: compare in the promoted dtype of the operands.
template <Comparison direction>
Values comparison(Emit& e, const Call& c) {
  Pointwise k(e, c, element_of(result_type(c, {"self", "other"})));
  return k.give(k("self").apply(direction, k("other")));
}

template <Comparison direction>
void add_comparison(RuleTable& rules, const std::string& name) {
  rules.add("aten::" + name + ".Tensor", comparison<direction>);
  rules.add("aten::" + name + ".Scalar", comparison<direction>);
}

// aten::logical_and and its kin: anything but zero is true, NaN too.
template <OpName op>
Values logical(Emit& e, const Call& c) {
  Pointwise k(e, c, ElementType::kPred);
  return k.give(k("self").apply(op, k("other")));
}

// aten::logical_not.
Values logical_not(Emit& e, const Call& c) {
  Pointwise k(e, c, ElementType::kPred);
  return k.give(!k("self"));
}

// aten::maximum and aten::minimum: NaN propagates. Two zeros give the second.
template <Expression (*extreme)(const Expression&, const Expression&)>
Values extreme_rule(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(extreme(k("other"), k("self")));
}

// aten::fmax and aten::fmin: a number wins over NaN. Two zeros give the first, in bfloat16 the second.
template <Expression (*extreme)(const Expression&, const Expression&)>
Values number_wins(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression a = k("self"), b = k("other");
  if (!is_floating(k)) return k.give(extreme(a, b));
  const bool second = e.element(c.result()) == ElementType::kBF16;
  return k.give(where(isnan(a), b, where(isnan(b), a, second ? extreme(b, a) : extreme(a, b))));
}

// aten::clamp: NaN in any operand propagates; where min is above max, max wins. Two zeros give x, or the bound if
// that is a tensor.
template <bool by_tensors>
Values clamp(Emit& e, const Call& c) {
  Pointwise k(e, c);
  if (k.element == ElementType::kPred && c.has("min") && c.has("max")) throw Mistake("bools between two bounds");
  Expression x = k("self");
  if (c.has("min")) x = by_tensors ? larger_of(k("min"), x) : larger_of(x, k("min"));
  if (c.has("max")) x = by_tensors ? smaller_of(k("max"), x) : smaller_of(x, k("max"));
  return k.give(x);
}

// aten::where: selects without computing, so it keeps the result's own dtype.
Values where_rule(Emit& e, const Call& c) {
  Pointwise k(e, c, e.element(c.result()));
  Pointwise condition(e, c, ElementType::kPred);
  return k.give(where(condition("condition"), k("self"), k("other")));
}

}  // namespace

void add_comparison_rules(RuleTable& rules) {
  add_comparison<Comparison::kEq>(rules, "eq");
  add_comparison<Comparison::kNe>(rules, "ne");
  add_comparison<Comparison::kLt>(rules, "lt");
  add_comparison<Comparison::kLe>(rules, "le");
  add_comparison<Comparison::kGt>(rules, "gt");
  add_comparison<Comparison::kGe>(rules, "ge");
  rules.add("aten::logical_and", logical<"and">);
  rules.add("aten::logical_or", logical<"or">);
  rules.add("aten::logical_xor", logical<"xor">);
  rules.add("aten::logical_not", logical_not);
  rules.add("aten::maximum", extreme_rule<larger_of>);
  rules.add("aten::minimum", extreme_rule<smaller_of>);
  rules.add("aten::fmax", number_wins<larger_of>);
  rules.add("aten::fmin", number_wins<smaller_of>);
  for (auto overload : {"aten::clamp", "aten::clamp_min", "aten::clamp_max"}) rules.add(overload, clamp<false>, kReals);
  for (auto overload : {"aten::clamp.Tensor", "aten::clamp_min.Tensor", "aten::clamp_max.Tensor"}) {
    rules.add(overload, clamp<true>, kNotComplex);
  }
  rules.add("aten::where.self", where_rule);
}

namespace {

// Shifts by as many bits as the type has, or by a negative number, move all bits out, in torch as in StableHLO. A
// signed integer keeps its sign.
Values shift_right(Emit& e, const Call& c) {
  Pointwise k(e, c);
  const bool is_signed = hlo::is_signed_integer(k.element);
  return k.give(k("self").apply(is_signed ? "shift_right_arithmetic" : "shift_right_logical", k("other")));
}

template <Rule rule>
void add_bitwise(RuleTable& rules, const std::string& name) {
  rules.add(name + ".Tensor", rule);
  rules.add(name + ".Tensor_Scalar", rule);
  rules.add(name + ".Scalar_Tensor", rule);
}

}  // namespace

void add_bitwise_rules(RuleTable& rules) {
  for (auto overload : {".Tensor", ".Scalar", ".Scalar_Tensor"}) {
    rules.add(std::string("aten::bitwise_and") + overload, binary_rule<"and">);
    rules.add(std::string("aten::bitwise_or") + overload, binary_rule<"or">);
    rules.add(std::string("aten::bitwise_xor") + overload, binary_rule<"xor">);
  }
  rules.add("aten::bitwise_not", unary_rule<"not">);
  add_bitwise<binary_rule<"shift_left">>(rules, "aten::bitwise_left_shift");
  add_bitwise<shift_right>(rules, "aten::bitwise_right_shift");
  for (auto overload : {".Tensor", ".Scalar"}) {
    rules.add(std::string("aten::__lshift__") + overload, binary_rule<"shift_left">);
    rules.add(std::string("aten::__rshift__") + overload, shift_right);
  }
}

namespace {

// aten::clone, aten::_to_copy: the result's type says all; memory formats belong to the storage.
Values converted(Emit& e, const Call& c) { return {e.as(c.tensor("self"), c.result())}; }

// aten::copy: src in self's type.
Values copy(Emit& e, const Call& c) { return {e.as(c.tensor("src"), c.result())}; }

// Throws Mistake for parts that PyTorch makes no complex number of.
void require_parts(const Value& a, const Value& b) {
  if (a.element() != b.element()) throw Mistake("the parts of a complex number differ in dtype");
  if (a.element() == ElementType::kBF16) throw Mistake("there are no complex numbers of bfloat16");
}

// aten::complex.
Values complex(Emit& e, const Call& c) {
  require_parts(c.tensor("real"), c.tensor("imag"));
  Pointwise k(e, c, hlo::real_element(e.element(c.result())));
  return {e.complex(k("real").value, k("imag").value)};
}

// aten::polar.
Values polar(Emit& e, const Call& c) {
  Pointwise k(e, c, hlo::real_element(e.element(c.result())));
  require_parts(c.tensor("abs"), c.tensor("angle"));
  Expression size = k("abs"), angle = k("angle");
  return {e.complex((size * cosine(angle)).value, (size * sine(angle)).value)};
}

// aten::angle: for a real number 0, pi where it is negative, or NaN.
Values angle(Emit& e, const Call& c) {
  Value z = c.tensor("self");
  if (hlo::is_complex(z.element())) {
    const Expression real{&e, e.unary("real", z)}, imaginary{&e, e.unary("imag", z)};
    return {e.as(angle_of(imaginary, real).value, c.result())};
  }
  Pointwise k(e, c);
  Expression x = k("self");
  return k.give(where(isnan(x), x, where(x < 0, x.number(M_PI), x.number(0))));
}

// aten::_conj_physical.
Values conj_physical(Emit& e, const Call& c) {
  Value z = c.tensor("self");
  if (!hlo::is_complex(z.element())) return {e.as(z, c.result())};
  return {e.complex(e.unary("real", z), e.neg(e.unary("imag", z)))};
}

}  // namespace

void add_conversion_rules(RuleTable& rules) {
  for (auto overload : {"aten::clone", "aten::_to_copy", "aten::lift_fresh_copy"}) rules.add(overload, converted);
  rules.add("aten::copy", copy);
  rules.add("aten::complex", complex);
  rules.add("aten::polar", polar);
  rules.add("aten::angle", angle);
  rules.add("aten::_conj_physical", conj_physical);
}

}  // namespace tpjrt::ops
