// Shape-polymorphic keys of graphs: equal for graphs that differ only in sizes.
#include "engine/tier/graph_keys.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "engine/tier/policy.h"

namespace tpjrt::engine {

namespace {

using graph::Node;
using graph::Value;

constexpr size_t kMostKeys = size_t{1} << 14;

}  // namespace

uint64_t hash_of_calls(const graph::Walk& walk, const std::function<bool(const Node&)>& chosen,
                       const std::function<uint64_t(const Node&)>& word) {
  std::map<std::pair<const Node*, uint32_t>, uint64_t> numbers;  // numbers of values, in the order of their first use
  uint64_t hash = 0;
  for (const Node* node : walk.nodes) {
    if (!chosen(*node)) continue;
    hash = graph::mixed(hash, word(*node));
    for (const Value& operand : node->operands) {
      hash = graph::mixed(hash, numbers.try_emplace({operand.node.get(), operand.index}, numbers.size()).first->second);
    }
    for (uint32_t k = 0; k < node->signature->results.size(); ++k) numbers.try_emplace({node, k}, numbers.size());
  }
  return hash;
}

bool has_integer_ops_only(const graph::Walk& walk) {
  return std::ranges::all_of(walk.nodes, [](const Node* node) { return is_of_few_integers(*node); });
}

uint64_t shape_key(const graph::Walk& walk) {
  return hash_of_calls(
      walk, [](const Node& node) { return !is_of_few_integers(node); },
      [](const Node& node) {
        uint64_t word = std::hash<std::string_view>()(node.signature->name);
        for (const graph::TypePtr type : node.signature->operands) {
          word = graph::mixed(word, static_cast<uint64_t>(type->dtype));
        }
        return word;
      });
}

int GraphKeys::count(uint64_t key, const graph::Walk& walk) {
  if (seen_.size() == kMostKeys) seen_.clear();
  Seen& seen = seen_[key];
  if (seen.first == 0) seen.first = walk.hash;
  if (seen.first == walk.hash) return 0;
  if (seen.second == 0) seen.second = walk.hash;
  return seen.second == walk.hash ? 1 : 2;
}

}  // namespace tpjrt::engine
