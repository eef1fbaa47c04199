// Bisection of sorted rows.
#pragma once

#include "ops/rule/emit.h"

namespace tpjrt::ops {

// Into which gap of the sorted rows of `sequence` each value falls: the number of elements below it (or, with `right`,
// not above it). Rows go together when `sequence` has more than one dimension. NaN passes all that it is compared with.
Value search(Emit& e, const Value& sequence, const Value& values, bool right);

}  // namespace tpjrt::ops
