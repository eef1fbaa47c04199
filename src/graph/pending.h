// Which of all that is recorded waits to be run: for starting it, though nobody reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/node.h"

namespace tpjrt::graph {

// Less than this is not worth a program of its own.
struct Least {
  size_t nodes = 0;
  size_t nbytes = SIZE_MAX;     // of leaves that new nodes read; enough in the place of nodes
  uint64_t begun = UINT64_MAX;  // in any case, the component's oldest node isn't newer
};
inline constexpr Least kLarge{.nodes = Component::kLarge};
inline constexpr uint64_t kEver = 0;  // since when: before all nodes

// A value of each component that can be run and is to be started. Under graph_lock().
// Since ever: of each that has the nodes.
// Since a node: of each whose tensors got pending values after it. None where that is little: no tensor needs so many such
// nodes, and all together read less.
std::vector<Value> pending(uint64_t since, const Least& least);
bool any_pending();

}  // namespace tpjrt::graph
