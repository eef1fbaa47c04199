// Writes that XLA:CPU must not do in place.
//
// It fuses a dynamic_update_slice with what computes the update, into a loop in the memory of what is written to, even where
// the update reads that memory at other places: the loop then reads what it has just written, so that
// `y = x.clone(); y[1:] += x[:-1]; y[2:] += 1` sums up. Barriers don't help: they are taken out before fusions are made.
#pragma once

#include <vector>

#include "engine/lower/program/number_slot.h"
#include "graph/tape/walk.h"
#include "ops/rule/emit.h"

namespace tpjrt::engine {

// By Node::local: may an update that is written within this node depend on what it is written over? Told for writes
// to views (one element is read before it is written: in rows); for other nodes, which may hold writes, anywhere.
std::vector<ops::Overwrites> overwrites_of(const graph::Walk& walk, const std::vector<NumberSlot>& slots);

}  // namespace tpjrt::engine
