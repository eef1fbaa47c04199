// Assertions: what the user says must hold of data. The program goes on; the error is raised as other requirements' is.
#include "ops/rule/rules.h"

namespace tpjrt::ops {

namespace {

// aten::_functional_assert_async.msg: `self` must not be zero. Gives the token, which whoever needs the assertion needs.
Values functional_assert_async(Emit& e, const Call& c) {
  const Value self = c.tensor("self");
  e.require_all(e.to(self, ElementType::kPred), c.string("assert_msg"));
  return {c.tensor("dep_token")};
}

}  // namespace

void add_assertion_rules(RuleTable& rules) { rules.add("aten::_functional_assert_async.msg", functional_assert_async); }

}  // namespace tpjrt::ops
