// A choice between a fast way, which is right for nearly all data, and a slow one for the rest.
#pragma once

#include <functional>
#include <vector>

#include "ops/rule/expression.h"

namespace tpjrt::ops {

// Float32 is what there are fast ways for.
inline bool has_fast_way(const Expression& x) { return x.value.element() == ElementType::kF32; }

inline Expression converted(const Expression& x, ElementType element) { return x.with(x.e->convert(x.value, element)); }

// `fast`, where `rare` is true of no element, else `slow` of the operands, which are of its shape. Of few elements it is
// always `slow`: the choice would take longer.
Expression usually(const Expression& rare, const std::vector<Expression>& operands,
                   const std::function<Expression(const std::vector<Expression>&)>& slow,
                   const std::function<Expression()>& fast);

}  // namespace tpjrt::ops
