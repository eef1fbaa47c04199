// Sorting as torch orders: NaN is the greatest, equal elements keep their order. Shared by sorting.cpp and random.cpp.
#pragma once

#include "ops/rule/rules.h"

namespace tpjrt::ops {

struct Sorted {
  Value values, indices;  // the indices are s64 positions along the dimension
};

Sorted sort_along(Emit& e, const Value& x, int64_t dim, bool descending);

}  // namespace tpjrt::ops
