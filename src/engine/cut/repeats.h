// A graph that repeats itself: the rounds of a loop are run by one program, again and again.
//
// Note [Repeats]: a loop that reads nothing records one graph of all its rounds (a sampler's steps, a power iteration, a
// cell that is called for each element of a sequence, and the gradients of these). XLA compiles it round by round: 500
// rounds of a product and a norm took 15 s. Here such a graph is cut into segments of equal calls. The first is compiled,
// the others find its program.
//
// A round is told by its calls: a run of calls in recording order in which each is the call of one period before. Calls
// that are rare in the graph (a choice by a constant index, in each round another) don't count as part of the period.
// Those that need nothing of the run are done before it, the others between its segments. The layers of a network repeat
// themselves, too, but each reads parameters of its own. They stay one program, which runs faster: it will be run often.
// What a round of a backward reads of its round of the forward is its own as well, but nobody else holds it. A loop reads
// what all its rounds read, what the round before gave, or parts of what the graph computed before (a row of a tensor).
#pragma once

#include "graph/tape/parts.h"

namespace tpjrt::engine {

// The part of each node; empty where nothing repeats itself often enough.
graph::PartOfNode find_repeats(const graph::Walk& walk);

}  // namespace tpjrt::engine
