// A choice between a fast formula, which is right for nearly all data, and a slow one for the rest.
#pragma once

#include <functional>
#include <vector>

#include "ops/rule/expression.h"

namespace tpjrt::ops {

// Returns whether x has a fast formula: only float32 has any.
inline bool has_fast_way(const Expression& x) { return x.value.element() == ElementType::kF32; }

inline Expression converted(const Expression& x, ElementType element) { return x.with(x.e->convert(x.value, element)); }

// Returns `fast` if `rare` is false for every element, otherwise `slow` of the operands, which have rare's shape.
// Small tensors always take `slow`: the branch would take longer.
Expression usually(const Expression& rare, const std::vector<Expression>& operands,
                   const std::function<Expression(const std::vector<Expression>&)>& slow,
                   const std::function<Expression()>& fast);

}  // namespace tpjrt::ops
