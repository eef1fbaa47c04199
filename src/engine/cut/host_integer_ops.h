// Host-side integer ops before and after a network, cut off so that the network's own graph recurs.
//
// Note [Host-side integer ops]: a loop's host-side integer ops (positions, lengths, masks, the tokens so far) often
// have another shape in each iteration while the network in it has not, as in `generate()` with a static cache. One
// graph of both would never recur. So a graph that is new as a whole, but whose calls between those that can run before
// and those that can run after belong to an earlier graph, is split into three graphs.
#pragma once

#include <cstdint>
#include <unordered_set>

#include "graph/fingerprint/parts.h"

namespace tpjrt::engine {

class HostIntegerOps {
 public:
  // Returns the part of each node of a graph that was not seen before; empty if its middle is new, too.
  graph::PartOfNode find(const graph::Walk& walk);

 private:
  std::unordered_set<uint64_t> middles_;  // hashes of the middles of all large graphs
};

}  // namespace tpjrt::engine
