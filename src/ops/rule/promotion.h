// torch's type promotion, for the rules whose result dtype is not the dtype they compute in (comparisons above all).
#pragma once

#include <initializer_list>

#include "ops/rule/call.h"

namespace tpjrt::ops {

// Returns the dtype in which torch computes with these arguments, tensors or Scalars; None is skipped. Tensors with
// dimensions decide first, then 0-d tensors, then scalars. A later class counts only if it is of a higher category
// (bool, integer, floating, complex).
c10::ScalarType result_type(const Call& c, std::initializer_list<std::string_view> arguments);

}  // namespace tpjrt::ops
