// Finds writes that XLA:CPU must not do in place.
//
// XLA:CPU fuses a dynamic_update_slice with the ops that compute the update into a loop over the overwritten memory,
// even if the update reads that memory at other places. The loop then reads elements that it has just written, so that
// `y = x.clone(); y[1:] += x[:-1]; y[2:] += 1` gives prefix sums. Barriers don't help: XLA removes them before fusion.
#pragma once

#include <vector>

#include "engine/lower/module/scalar_slot.h"
#include "graph/fingerprint/walk.h"
#include "ops/rule/emit.h"

namespace tpjrt::engine {

// Returns by Node::local whether an update written within the node may depend on the memory that it overwrites. Writes
// to views get a precise answer (a single element is read before it is written, so it counts as rows); other nodes,
// which may contain writes, get kReadAnywhere.
std::vector<ops::Overwrites> overwrites_of(const graph::Walk& walk, const std::vector<ScalarSlot>& slots);

}  // namespace tpjrt::engine
