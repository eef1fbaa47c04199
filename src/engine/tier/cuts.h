// Graphs that run in parts: iterations of a loop that share one program (Note [Loop rerolling]), a network and the
// integer ops around it (Note [Host-side integer ops]), and graphs too large for one program.
//
// Note [Host-side integer ops]: a loop's host-side integer ops (positions, lengths, masks, the tokens so far) often
// have another shape in each iteration while the network in it has not, as in `generate()` with a static cache. One
// graph of both would never recur. So a graph that is new as a whole, but whose calls between those that can run before
// and those that can run after belong to an earlier graph, is split into three graphs. It is so on devices with memory
// of their own and no kernels of PyTorch, where a graph that never recurs runs on copies on the host. Elsewhere one
// interpreted graph takes less time than three of which one is compiled.
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
// Returns how to cut a graph of that many calls that was not seen before. `networks`: null if none is looked for.
Cut cut_of(const graph::Walk& walk, GraphKeys* networks);

}  // namespace tpjrt::engine
