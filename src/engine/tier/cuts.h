// Graphs that run in parts: iterations of a loop that share one program (Note [Loop rerolling]), a network and the
// integer ops around it (Note [Host-side integer ops]), and graphs too large for one program.
//
// Host-side integer ops before and after a network, cut off so that the network's own graph recurs.
//
// Note [Host-side integer ops]: a loop's host-side integer ops (positions, lengths, masks, the tokens so far) often
// have another shape in each iteration while the network in it has not, as in `generate()` with a static cache. One
// graph of both would never recur. So a graph that is new as a whole, but whose calls between those that can run before
// and those that can run after belong to an earlier graph, is split into three graphs.
//
// Loop rerolling: the iterations of a loop in a graph run as one program, again and again.
//
// Note [Loop rerolling]: a loop that reads nothing records one graph of all its iterations (a sampler's steps, a power
// iteration, a recurrent layer called for each element of a sequence, and the gradients of these). XLA would compile
// every iteration: 500 iterations of a product and a norm took 15 s. Such a graph is cut into segments of equal calls.
// The first segment is compiled, and the others find its program.
//
// Iterations are recognized by their calls: a run of calls in recording order in which each equals the call of one
// period before. Calls that are rare in the graph (a choice by a constant index, which differs in each iteration) don't
// count as part of the period. Rare calls that need nothing of the run are done before it, the others between its
// segments. The layers of a network repeat, too, but each reads parameters of its own. They stay one program, which
// runs faster, because it will run often. An iteration of a backward also reads values of its own, from its iteration
// of the forward, but nobody else holds them. A loop reads values that all its iterations share, values of the previous
// iteration, or parts of an earlier result (a row of a tensor).
#pragma once

#include <cstdint>

#include "engine/tier/graph_keys.h"
#include "graph/fingerprint/parts.h"
#include "graph/fingerprint/walk.h"

namespace tpjrt::engine {

struct Cut {
  graph::PartOfNode part;  // empty: the graph runs whole
  const char* cause = nullptr;
};

inline constexpr size_t kLeastToCut = 48;  // calls; smaller graphs compile quickly
// Returns how to cut a graph of that many calls that was not seen before.
Cut cut_of(const graph::Walk& walk, GraphKeys& keys);

// Returns the part of each node; empty if nothing repeats often enough.
graph::PartOfNode reroll_loops(const graph::Walk& walk);

}  // namespace tpjrt::engine
