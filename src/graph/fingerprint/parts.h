// Graphs that run in parts: the part of each node, and the walk of each part.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "graph/fingerprint/walk.h"

namespace tpjrt::graph {

// By Node::local. A node's operands are in the same part or in earlier ones. Empty: the graph is not cut.
using PartOfNode = std::vector<uint32_t>;

class Parts {
 public:
  // The walk's nodes must be those of the last walk.
  Parts(const Walk& walk, const PartOfNode& part);

  uint32_t count() const { return static_cast<uint32_t>(needed_.size()); }
  // Walks one part, whose results are the values that storage slots hold and that later parts need. Call it once for
  // each part, in order, after the earlier parts have run, under graph_lock() and the engine's lock. The walk may be
  // empty.
  void walk(uint32_t part, Walk& out);

 private:
  std::unordered_map<uint64_t, uint32_t> part_of_;  // by Node::id
  std::vector<std::vector<Value>> needed_;          // values that later parts need
  std::vector<Value> results_;                      // of the whole walk: keep the nodes alive
};

}  // namespace tpjrt::graph
