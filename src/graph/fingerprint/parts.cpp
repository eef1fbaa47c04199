// Walks the parts of a graph.
#include "graph/fingerprint/parts.h"

#include <algorithm>
#include <utility>

namespace tpjrt::graph {

Parts::Parts(const Walk& walk, const PartOfNode& part)
    : needed_(*std::max_element(part.begin(), part.end()) + 1), results_(walk.results) {
  for (size_t i = 0; i < walk.nodes.size(); ++i) {
    part_of_.emplace(walk.nodes[i]->id, part[i]);
    for (const Value& operand : walk.nodes[i]->operands) {
      if (operand.is_leaf()) continue;
      const uint32_t from = part[operand.node->local];
      if (from < part[i]) needed_[from].push_back(operand);
    }
  }
}

void Parts::walk(uint32_t part, Walk& out) {
  walk_some(
      results_,
      [&](const Node& node) {
        const auto it = part_of_.find(node.id);
        return it != part_of_.end() && it->second == part;
      },
      std::exchange(needed_[part], {}), out);
}

}  // namespace tpjrt::graph
