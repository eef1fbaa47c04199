// Topological order of a graph's nodes.
#pragma once

#include <vector>

#include "graph/node.h"

namespace tpjrt::graph {

// Returns the nodes that `results` depend on, leaves included, operands first. For the cold path: the engine's walk
// does this and more in one pass.
std::vector<const Node*> topological_order(const std::vector<Value>& results);

}  // namespace tpjrt::graph
