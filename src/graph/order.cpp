// Depth-first search without recursion, because a graph may be deep.
#include "graph/order.h"

#include <unordered_set>

namespace tpjrt::graph {

std::vector<const Node*> topological_order(const std::vector<Value>& results) {
  std::vector<const Node*> order;
  std::unordered_set<const Node*> seen;
  std::vector<std::pair<const Node*, size_t>> stack;
  for (const Value& value : results) {
    if (!value || !seen.insert(value.node.get()).second) continue;
    stack.emplace_back(value.node.get(), 0);
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      if (next == node->operands.size()) {
        order.push_back(node);
        stack.pop_back();
        continue;
      }
      const Node* operand = node->operands[next++].node.get();
      if (seen.insert(operand).second) stack.emplace_back(operand, 0);
    }
  }
  return order;
}

}  // namespace tpjrt::graph
