// Reading in a world, where a tensor has a value for each rank and the host needs one (Note [Replication analysis],
// replication.h).
//
// Every function that copies a tensor's values to the host calls these, so a program sees one rank's values only if
// it names the rank (values_of_rank).
#pragma once

#include "graph/node.h"

namespace tpjrt::device::world {

// Returns whether the ranks' values of a leaf are known to be equal. True outside of a world.
bool has_one_value(const graph::Value& leaf);
// Throws unless has_one_value. `what`: the reader, for the error.
void check_one_value(const graph::Value& leaf, const char* what);

}  // namespace tpjrt::device::world
