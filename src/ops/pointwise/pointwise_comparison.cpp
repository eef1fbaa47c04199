// Comparisons, logic, maximum and minimum, clamp, where.
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

}  // namespace tpjrt::ops
