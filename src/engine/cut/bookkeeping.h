// Small integers before and after a network: cut from it, so that the network is found again.
//
// Note [Bookkeeping]: what a loop keeps books with (positions, lengths, masks, the tokens so far) often has another shape in each
// round, and what it computes has not: `generate()` with a static cache. One graph of both would never come back. So where
// the calls between what can be done before and what can be done after are those of an earlier graph, and the whole is new,
// the three are graphs of their own.
#pragma once

#include <cstdint>
#include <unordered_set>

#include "graph/tape/parts.h"

namespace tpjrt::engine {

class Bookkeeping {
 public:
  // The parts of a graph that was not met before; empty where its middle is new, too.
  graph::PartOfNode find(const graph::Walk& walk);

 private:
  std::unordered_set<uint64_t> middles_;  // of all large graphs
};

}  // namespace tpjrt::engine
