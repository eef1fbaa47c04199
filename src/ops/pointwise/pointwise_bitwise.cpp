// Bitwise ops and shifts of integers and bools.
#include <string>

#include "ops/pointwise/pointwise.h"

namespace tpjrt::ops {

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

}  // namespace tpjrt::ops
