// Finds the calls that can run before and after a network.
#include "engine/cut/host_integer_ops.h"

#include <algorithm>
#include <vector>

#include "engine/tier/cost.h"
#include "engine/tier/shape_keys.h"

namespace tpjrt::engine {
namespace {

using graph::Node;
using graph::Value;

constexpr size_t kLeastMiddle = 100;  // calls; smaller graphs run or compile whole
constexpr uint32_t kBefore = 0, kMiddle = 1, kAfter = 2;

graph::PartOfNode around_a_network(const graph::Walk& walk) {
  const size_t count = walk.nodes.size();
  graph::PartOfNode part(count, kMiddle);
  std::vector<bool> movable(count), needed(count, false);  // needed: by a call that does not run after the middle
  for (size_t i = 0; i < count; ++i) {
    movable[i] = is_of_few_integers(*walk.nodes[i]);
    const auto& operands = walk.nodes[i]->operands;
    const bool first = movable[i] && std::all_of(operands.begin(), operands.end(), [&](const Value& operand) {
                         return operand.is_leaf() || part[operand.node->local] == kBefore;
                       });
    if (first) part[i] = kBefore;
  }
  for (size_t i = count; i-- > 0;) {
    if (part[i] == kMiddle && movable[i] && !needed[i]) part[i] = kAfter;
    if (part[i] == kAfter) continue;
    for (const Value& operand : walk.nodes[i]->operands) {
      if (!operand.is_leaf()) needed[operand.node->local] = true;
    }
  }
  const auto middle = static_cast<size_t>(std::count(part.begin(), part.end(), kMiddle));
  return middle == count || middle < kLeastMiddle ? graph::PartOfNode{} : part;
}

// A hash that is equal for graphs with the same middle part.
uint64_t middle_hash(const graph::Walk& walk, const graph::PartOfNode& part) {
  return hash_of_calls(
      walk, [&](const Node& node) { return part[node.local] == kMiddle; },
      [](const Node& node) { return reinterpret_cast<uint64_t>(node.signature); });
}

}  // namespace

graph::PartOfNode HostIntegerOps::find(const graph::Walk& walk) {
  graph::PartOfNode part = around_a_network(walk);
  if (part.empty() || middles_.insert(middle_hash(walk, part)).second) return {};
  return part;
}

}  // namespace tpjrt::engine
