// A branch that XLA does not turn into a select.
#include "ops/xla_cpu/choice.h"

#include <algorithm>

#include "ops/pointwise/pointwise.h"

namespace tpjrt::ops {

Expression usually(const Expression& rare, const std::vector<Expression>& operands,
                   const std::function<Expression(const std::vector<Expression>&)>& slow,
                   const std::function<Expression()>& fast) {
  constexpr int64_t kFewest = 4096;
  if (rare.value.type.elements() < kFewest) return slow(operands);
  Emit& e = *rare.e;
  const Dims& dims = rare.value.dims();
  const Dims longest{std::max_element(dims.begin(), dims.end()) - dims.begin()};
  const auto reversed = [&](const Expression& x) { return x.with(e.reverse(x.value, longest)); };
  // XLA turns a branch whose sides are both elementwise into a select, and computes both. The slow side therefore
  // reverses its operands and its result.
  const auto otherwise = [&](const Values&) {
    std::vector<Expression> reversed_operands;
    for (const Expression& x : operands) reversed_operands.push_back(reversed(x));
    return Values{reversed(slow(reversed_operands)).value};
  };
  return rare.with(e.if_else(any(rare), otherwise, [&](const Values&) { return Values{fast().value}; })[0]);
}

}  // namespace tpjrt::ops
