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

#include "graph/fingerprint/parts.h"
#include "graph/fingerprint/walk.h"

namespace tpjrt::engine {

// Returns the part of each node; empty if nothing repeats often enough.
graph::PartOfNode reroll_loops(const graph::Walk& walk);

}  // namespace tpjrt::engine
