// Reading in a world, where a tensor has a value for each rank and the host wants one (Note [Agreement], agreement.h).
#pragma once

#include "graph/node.h"

namespace tpjrt::device::world {

// Raises where the ranks' values of a leaf are not known to be equal; outside of a world they are. `what` reads it.
void check_one_value(const graph::Value& leaf, const char* what);
// Warns once where they are not: what is shown then are the first rank's.
void tell_that_first_is_shown(const graph::Value& leaf);

}  // namespace tpjrt::device::world
