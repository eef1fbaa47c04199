// Sorting in torch's order: NaN is the greatest, and equal elements keep their order. sorting.cpp and random.cpp
// share it.
#pragma once

#include "ops/rule/rules.h"

namespace tpjrt::ops {

struct Sorted {
  Value values, indices;  // the indices are s64 positions along the dimension
};

Sorted sort_along(Emit& e, const Value& x, int64_t dim, bool descending);

}  // namespace tpjrt::ops
