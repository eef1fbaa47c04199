// Assertions about data. The program goes on, and the error is raised like those of other runtime assertions.
#include "ops/rule/rules.h"

namespace tpjrt::ops {

namespace {

// aten::_functional_assert_async.msg: `self` must not be zero. Returns the token, on which the users of the assertion
// depend.
Values functional_assert_async(Emit& e, const Call& c) {
  const Value self = c.tensor("self");
  e.require_all(e.to(self, ElementType::kPred), c.string("assert_msg"));
  return {c.tensor("dep_token")};
}

// torch_pjrt::require_zero: device/services/trace_assertions.h. Without a message it asserts nothing, and only ties
// the result to an assertion.
Values require_zero(Emit& e, const Call& c) {
  const Value given = c.tensor("violations"), result = c.tensor("result");
  std::string message = c.string("message");
  const int64_t n = given.type.elements();
  if (message.empty() || n == 0 || !e.has_assertions()) return {result};
  const Type words{ElementType::kS64, {n}}, word{ElementType::kS64, {}};
  const Value values = e.reshape(e.convert(given, words.element), {n}), order = e.iota(words, 0);
  const Value is_first = [&] {
    const Value zero = e.compare(hlo::Comparison::kEq, values, e.zeros(words));
    const Value first = e.reduce("minimum", e.select(zero, e.constant(n, words), order), e.constant(n, word), {0});
    return e.compare(hlo::Comparison::kEq, order, e.broadcast_to(first, {n}));
  }();
  const auto at_first = [&](const Value& of) { return e.sum(e.select(is_first, of, e.zeros(words)), {0}); };
  Value violation = e.unary("abs", at_first(values));
  if (message.find(kIndexOfViolation) != message.npos)  // packs both into one integer
    violation = e.add(violation, e.mul(at_first(order), e.constant(kViolations, word)));
  e.require(Assertion{violation, violation, 0, 1, std::move(message), raised_by(c.string("error"))});
  return {result};
}

}  // namespace

void add_assertion_rules(RuleTable& rules) {
  rules.add("aten::_functional_assert_async.msg", functional_assert_async);
  rules.add("torch_pjrt::require_zero", require_zero);
}

}  // namespace tpjrt::ops
