// Telling the new calls of a graph from the known ones. Cold: once for each new graph.
#include "engine/cut/growth.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "engine/cut/bookkeeping.h"
#include "engine/cut/repeats.h"

namespace tpjrt::engine {
namespace {

using graph::Node;
using graph::Value;

constexpr size_t kLeastMiddle = 100;  // calls of the middle of three parts; fewer compile in little time
constexpr size_t kMostAround = 2;     // at most one call of the other parts to so many in the middle
constexpr size_t kMostBefore = 32;    // calls that a new one may rest on and still be in the first part
constexpr size_t kLeastGain = 2;      // calls of the graph to one that has to be compiled
constexpr size_t kLeastTurn = 6;      // calls of a turn, on average: running a program costs as much as recording some
constexpr uint32_t kBefore = 0, kMiddle = 1, kAfter = 2;

// What is equal for two graphs of the same calls in the same order, whatever their shapes and dtypes.
uint64_t shapeless_hash(const graph::Walk& walk) {
  uint64_t hash = walk.nodes.size();
  const auto mix = [&](uint64_t word) { hash = graph::mixed(hash, word); };
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

std::vector<graph::SignaturePtr> calls_of(const graph::Walk& walk) {
  std::vector<graph::SignaturePtr> calls;
  for (const Node* node : walk.nodes) calls.push_back(node->signature);
  return calls;
}

// Puts a node and all that it rests on in the first part, unless that is too much.
bool put_before(const graph::Walk& walk, size_t node, graph::PartOfNode& part) {
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

// The calls that are new, those which the rest needs before it, those that need the rest after it. Empty where the rest is
// not large.
graph::PartOfNode around_the_known(const graph::Walk& walk, const std::vector<char>& is_new) {
  graph::PartOfNode part(walk.nodes.size(), kMiddle);
  for (size_t i = 0; i < walk.nodes.size(); ++i) {
    const Node& node = *walk.nodes[i];
    bool after = false;
    for (const Value& operand : node.operands) after |= !operand.is_leaf() && part[operand.node->local] == kAfter;
    if (after || (is_new[i] && !put_before(walk, i, part))) part[i] = kAfter;
  }
  const auto middle = static_cast<size_t>(std::count(part.begin(), part.end(), kMiddle));
  const size_t around = walk.nodes.size() - middle;
  if (middle < kLeastMiddle || around * kMostAround > middle) return {};
  return part;
}

// The same with bookkeeping as the outer parts.
graph::PartOfNode around_bookkeeping(const graph::Walk& walk) {
  const size_t count = walk.nodes.size();
  graph::PartOfNode part(count, kMiddle);
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
  return middle == count || middle < kLeastMiddle ? graph::PartOfNode{} : part;
}

// What is equal for two graphs with the same middle part.
uint64_t middle_hash(const graph::Walk& walk, const graph::PartOfNode& part) {
  std::map<std::pair<const Node*, uint32_t>, uint64_t> numbers;  // of values, in the order in which they are met
  uint64_t hash = 0;
  const auto mix = [&](uint64_t word) { hash = graph::mixed(hash, word); };
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

// The turns of what is new (even) and what is known (odd).
graph::PartOfNode in_turns(const graph::Walk& walk, const std::vector<char>& is_new) {
  graph::PartOfNode part;
  for (size_t i = 0; i < walk.nodes.size(); ++i) {
    uint32_t turn = is_new[i] ? 0 : 1;
    for (const Value& operand : walk.nodes[i]->operands) {
      if (operand.is_leaf()) continue;
      const uint32_t at = operand.node->local;
      turn = std::max(turn, part[at] + (is_new[at] != is_new[i] ? 1 : 0));
    }
    part.push_back(turn);
  }
  return part;
}

uint32_t count(const graph::PartOfNode& part) { return *std::max_element(part.begin(), part.end()) + 1; }

// Turns of much that is new, cut in layers.
graph::PartOfNode in_layers(const graph::Walk& walk, const graph::PartOfNode& turns) {
  std::vector<std::vector<const Node*>> nodes(count(turns));
  for (const Node* node : graph::in_recording_order(walk)) nodes[turns[node->local]].push_back(node);
  graph::PartOfNode part(walk.nodes.size());
  uint32_t next = 0;
  for (uint32_t turn = 0; turn < nodes.size(); ++turn) {
    const bool is_new = turn % 2 == 0;
    const graph::PartOfNode layers =
        is_new && nodes[turn].size() >= kLeastMiddle ? find_layers(walk, nodes[turn]) : graph::PartOfNode{};
    for (const Node* node : nodes[turn]) part[node->local] = next + (layers.empty() ? 0 : layers[node->local]);
    next += layers.empty() ? 1 : count(layers);
  }
  return part;
}

// How many calls have to be compiled, if parts of equal calls are compiled once.
size_t to_compile(const graph::Walk& walk, const graph::PartOfNode& part, const std::vector<char>& is_new) {
  std::vector<std::vector<graph::SignaturePtr>> calls(count(part));
  for (const Node* node : graph::in_recording_order(walk)) {
    if (is_new[node->local]) calls[part[node->local]].push_back(node->signature);
  }
  std::set<std::vector<graph::SignaturePtr>> distinct(calls.begin(), calls.end());
  size_t sum = 0;
  for (const auto& one : distinct) sum += one.size();
  return sum;
}

}  // namespace

graph::PartOfNode Growth::find(const graph::Walk& walk, bool may_interpret) {
  const Calls before = std::exchange(by_shapeless_hash_[shapeless_hash(walk)], calls_of(walk));
  graph::PartOfNode part = around_bookkeeping(walk);
  const bool known = !part.empty() && !middles_.insert(middle_hash(walk, part)).second;
  if (known && may_interpret) return part;
  if (before.size() != walk.nodes.size()) return {};
  std::vector<char> is_new;
  for (size_t i = 0; i < before.size(); ++i) is_new.push_back(walk.nodes[i]->signature != before[i]);
  if (std::find(is_new.begin(), is_new.end(), true) == is_new.end()) return {};
  part = around_the_known(walk, is_new);
  if (!part.empty()) return part;
  part = in_layers(walk, in_turns(walk, is_new));
  const bool pays = to_compile(walk, part, is_new) * kLeastGain <= walk.nodes.size();
  return pays && walk.nodes.size() >= count(part) * kLeastTurn ? part : graph::PartOfNode{};
}

}  // namespace tpjrt::engine
