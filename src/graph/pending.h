// Selects recorded work that should start although nobody reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/node.h"

namespace tpjrt::graph {

// The least amount of work that is worth a program of its own.
struct Least {
  size_t nodes = 0;
  size_t nbytes = SIZE_MAX;     // read from leaves by new nodes; enough without the nodes
  uint64_t begun = UINT64_MAX;  // required in any case: the component's oldest node isn't newer
};
inline constexpr Least kLarge{.nodes = Component::kLarge};
inline constexpr uint64_t kEver = 0;  // `since`: before all nodes

// Returns a value of each component that can run and should be started. Call it under graph_lock(). With `since` =
// kEver: of each with enough nodes. With a node's id: of each whose tensors got pending values after it. Nothing if
// that work is too little: no tensor needs enough such nodes, and together they read too few bytes.
std::vector<Value> pending(uint64_t since, const Least& least);
bool any_pending();

}  // namespace tpjrt::graph
