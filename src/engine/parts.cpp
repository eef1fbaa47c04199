// Telling the new calls of a graph from the known ones, and walking each kind.
#include "engine/parts.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "engine/interpret.h"

namespace tpjrt::engine {
namespace {

using graph::Node;
using graph::Value;

constexpr size_t kMostAround = 2;    // at most one call of the other parts to so many in the middle
constexpr size_t kMostBefore = 32;   // calls that a new one may rest on and still be in the first part
constexpr size_t kMostCalls = 4000;  // of one program
constexpr uint32_t kBefore = 0, kMiddle = 1, kAfter = 2;

// Puts a node and all that it rests on in the first part, unless that is too much.
bool put_before(const Walk& walk, size_t node, PartOfNode& part) {
  std::vector<size_t> below{node};
  for (size_t next = 0; next < below.size(); ++next) {
    for (const Value& operand : walk.nodes[below[next]]->operands) {
      if (operand.is_leaf() || part[operand.node->local] == kBefore) continue;
      if (std::find(below.begin(), below.end(), operand.node->local) != below.end()) continue;
      if (below.size() == kMostBefore) return false;
      below.push_back(operand.node->local);
    }
  }
  for (const size_t i : below) part[i] = kBefore;
  return true;
}

}  // namespace

uint64_t outline_hash(const Walk& walk) {
  uint64_t hash = walk.nodes.size();
  const auto mix = [&](uint64_t word) { hash = mixed(hash, word); };
  for (const Node* node : walk.nodes) {
    mix(std::hash<std::string>()(node->signature->name));
    for (const Value& operand : node->operands) {
      mix(static_cast<uint64_t>(operand.node->local) << 2 | static_cast<uint64_t>(operand.is_leaf()) << 1);
      mix(operand.index);
    }
  }
  for (const Value& result : walk.results) mix(static_cast<uint64_t>(result.node->local) << 8 | result.index);
  return hash;
}

std::vector<const Node*> in_recording_order(const Walk& walk) {
  std::vector<const Node*> nodes(walk.nodes.begin(), walk.nodes.end());
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->id < b->id; });
  return nodes;
}

Calls calls_of(const Walk& walk) {
  Calls calls;
  for (const Node* node : walk.nodes) calls.push_back(node->signature);
  return calls;
}

PartOfNode find_parts(const Walk& walk, const Calls& before) {
  if (before.size() != walk.nodes.size()) return {};
  PartOfNode part(walk.nodes.size(), kMiddle);
  size_t fresh = 0;
  for (size_t i = 0; i < walk.nodes.size(); ++i) {
    const Node& node = *walk.nodes[i];
    bool after = false;
    for (const Value& operand : node.operands) after |= !operand.is_leaf() && part[operand.node->local] == kAfter;
    const bool is_new = node.signature != before[i];
    fresh += is_new;
    if (after || (is_new && !put_before(walk, i, part))) part[i] = kAfter;
  }
  const auto middle = static_cast<size_t>(std::count(part.begin(), part.end(), kMiddle));
  const size_t around = walk.nodes.size() - middle;
  if (fresh == 0 || middle < Parts::kLeastCalls || around * kMostAround > middle) return {};
  return part;
}

PartOfNode around_bookkeeping(const Walk& walk) {
  const size_t count = walk.nodes.size();
  PartOfNode part(count, kMiddle);
  std::vector<bool> movable(count), needed(count, false);  // needed: by a call that is not done after the rest
  for (size_t i = 0; i < count; ++i) {
    movable[i] = is_bookkeeping(*walk.nodes[i]);
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
  return middle == count || middle < Parts::kLeastCalls ? PartOfNode{} : part;
}

uint64_t middle_hash(const Walk& walk, const PartOfNode& part) {
  std::map<std::pair<const Node*, uint32_t>, uint64_t> numbers;  // of values, in the order in which they are met
  uint64_t hash = 0;
  const auto mix = [&](uint64_t word) { hash = mixed(hash, word); };
  for (size_t i = 0; i < walk.nodes.size(); ++i) {
    if (part[i] != kMiddle) continue;
    const Node* node = walk.nodes[i];
    mix(reinterpret_cast<uint64_t>(node->signature));
    for (const Value& operand : node->operands) {
      mix(numbers.try_emplace({operand.node.get(), operand.index}, numbers.size()).first->second);
    }
    for (uint32_t k = 0; k < node->signature->results.size(); ++k) numbers.try_emplace({node, k}, numbers.size());
  }
  return hash;
}

PartOfNode in_pieces(const Walk& walk, const PartOfNode& part) {
  std::vector<size_t> size;  // of each part
  const auto part_of = [&](const Node* node) { return part.empty() ? 0 : part[node->local]; };
  for (const Node* node : walk.nodes) {
    if (part_of(node) >= size.size()) size.resize(part_of(node) + 1);
    ++size[part_of(node)];
  }
  std::vector<uint32_t> first(size.size() + 1, 0);  // the first piece of each part
  for (size_t i = 0; i < size.size(); ++i) {
    first[i + 1] = first[i] + static_cast<uint32_t>(std::max<size_t>(1, (size[i] + kMostCalls - 1) / kMostCalls));
  }
  if (first.back() == size.size()) return part;
  PartOfNode pieces(walk.nodes.size());
  std::vector<size_t> met(size.size(), 0);
  for (const Node* node : in_recording_order(walk)) {
    const uint32_t i = part_of(node);
    const uint32_t number = first[i + 1] - first[i];
    pieces[node->local] = first[i] + static_cast<uint32_t>(met[i]++ * number / size[i]);
  }
  return pieces;
}

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

}  // namespace tpjrt::engine
