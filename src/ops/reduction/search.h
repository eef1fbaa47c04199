// Bisection of sorted rows.
#pragma once

#include "ops/rule/emit.h"

namespace tpjrt::ops {

// Returns the gap of the sorted rows of `sequence` in which each value is: the number of elements below it (or, with
// `right`, not above it). If `sequence` has more than one dimension, each row is searched for its own values. NaN
// counts as above everything.
Value search(Emit& e, const Value& sequence, const Value& values, bool right);

}  // namespace tpjrt::ops
