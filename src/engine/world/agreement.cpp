// The classes of each node's results, from those of its operands.
#include "engine/world/agreement.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "engine/memory/device_data.h"
#include "graph/world/world.h"

namespace tpjrt::engine {
namespace {

using graph::Node;

const c10::IValue& constant(const graph::Signature& signature, std::string_view name) {
  for (const graph::Parameter& parameter : signature.parameters) {
    if (parameter.name == name) return parameter.constant;
  }
  TORCH_INTERNAL_ASSERT(false, signature.name, " has no argument ", name);
}

// Numbers the classes of ranks by what tells them apart; null, where nothing does.
template <class Key>
Agreement numbered(const std::vector<Key>& by_rank) {
  std::map<Key, uint32_t> numbers;
  Classes classes;
  for (const Key& key : by_rank) {
    classes.push_back(numbers.emplace(key, static_cast<uint32_t>(numbers.size())).first->second);
  }
  return numbers.size() > 1 ? std::make_shared<const Classes>(std::move(classes)) : nullptr;
}

uint32_t class_of(const Agreement& agreement, size_t rank) { return agreement ? (*agreement)[rank] : 0; }

// Ranks agree where they agree about all of them. What is parted leaves nothing of a promise.
Agreement met(const std::vector<Agreement>& operands) {
  Agreement one;
  for (const Agreement& operand : operands) {
    if (!operand || operand == one || (one && is_promised(operand))) continue;
    if (!one || is_promised(one)) {
      one = operand;
      continue;
    }
    std::vector<std::pair<uint32_t, uint32_t>> keys;
    for (size_t rank = 0; rank < one->size(); ++rank) keys.emplace_back((*one)[rank], (*operand)[rank]);
    one = numbered(keys);
  }
  return one;
}

// What a rank gets of a collective is made of the group's values in their order, and, where each gets its own part, of its place.
Agreement after_collective(const graph::Signature& signature, const Agreement& input) {
  const std::vector<int64_t> groups = constant(signature, "groups").toIntVector();
  const auto size = static_cast<size_t>(constant(signature, "group_size").toInt());
  const std::string_view op = std::string_view(signature.name).substr(std::string_view("pjrt_world::").size());
  const bool parts = op == "reduce_scatter" || op == "all_to_all";
  std::vector<std::vector<uint32_t>> keys(graph::world_size());
  for (size_t first = 0; first < groups.size(); first += size) {
    std::vector<uint32_t> classes;
    for (size_t i = 0; i < size; ++i) classes.push_back(class_of(input, static_cast<size_t>(groups[first + i])));
    if (op == "broadcast") classes = {classes[static_cast<size_t>(constant(signature, "source").toInt())]};
    for (size_t i = 0; i < size; ++i) {
      std::vector<uint32_t>& key = keys[static_cast<size_t>(groups[first + i])];
      key = classes;
      if (parts) key.push_back(static_cast<uint32_t>(i));
    }
  }
  Agreement found = numbered(keys);
  // Groups of ranks that only a promise holds together may have got different values.
  return !found && is_promised(input) && size < keys.size() ? promised() : found;
}

Agreement after(const Node& node, const std::vector<Agreement>& operands) {
  const graph::Signature& signature = *node.signature;
  if (!signature.name.starts_with("pjrt_world::")) return met(operands);
  if (signature.name == "pjrt_world::promised_equal") return operands[0] ? promised() : nullptr;
  if (signature.name == "pjrt_world::per_rank") return numbered(constant(signature, "values").toIntVector());
  return after_collective(signature, met(operands));
}

}  // namespace

const Agreement& promised() {
  static const Agreement all = std::make_shared<const Classes>(graph::world_size(), 0);
  return all;
}

std::vector<Agreement> agreements(const graph::Walk& walk) {
  std::vector<Agreement> leaves, nodes(walk.nodes.size()), results;
  for (const graph::NodePtr& leaf : walk.leaves) leaves.push_back(data_of(*leaf).agreement);
  const auto of = [&](const graph::Value& value) {
    return value.node->is_leaf() ? leaves[value.node->local] : nodes[value.node->local];
  };
  std::vector<Agreement> operands;
  for (const Node* node : walk.nodes) {
    operands.clear();
    for (const graph::Value& operand : node->operands) operands.push_back(of(operand));
    nodes[node->local] = after(*node, operands);
  }
  for (const graph::Value& value : walk.results) results.push_back(of(value));
  return results;
}

}  // namespace tpjrt::engine
