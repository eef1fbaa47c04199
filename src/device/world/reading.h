// Reading in a world, where a tensor has a value for each rank and the host wants one (Note [Agreement], agreement.h).
//
// Everything that takes a tensor's values to the host asks here, so a program sees one rank's values only where it names the rank
// (values_of_rank).
#pragma once

#include "graph/node.h"

namespace tpjrt::device::world {

// Whether the ranks' values of a leaf are known to be equal. True outside of a world.
bool has_one_value(const graph::Value& leaf);
// Raises unless has_one_value. `what`: who reads.
void check_one_value(const graph::Value& leaf, const char* what);

}  // namespace tpjrt::device::world
