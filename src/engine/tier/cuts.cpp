// Splits graphs that are too large. Finds the calls that can run before and after a network.
#include "engine/tier/cuts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "device/services/mechanisms.h"
#include "engine/tier/loop_rerolling.h"
#include "engine/tier/policy.h"

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

constexpr size_t kMostOfProgram = 4000;  // calls

// Splits the parts, or the whole graph, into pieces that are small enough for one program. XLA:CPU took 280 s to
// compile the 12,000 calls of a solver's backward, and 15 s to compile half of them.
graph::PartOfNode in_pieces(const graph::Walk& walk, const graph::PartOfNode& part) {
  std::vector<size_t> size;  // of each part
  const auto part_of = [&](const Node* node) { return part.empty() ? 0 : part[node->local]; };
  for (const Node* node : walk.nodes) {
    if (part_of(node) >= size.size()) size.resize(part_of(node) + 1);
    ++size[part_of(node)];
  }
  std::vector<uint32_t> first(size.size() + 1, 0);  // the first piece of each part
  for (size_t i = 0; i < size.size(); ++i) {
    first[i + 1] =
        first[i] + static_cast<uint32_t>(std::max<size_t>(1, (size[i] + kMostOfProgram - 1) / kMostOfProgram));
  }
  if (first.back() == size.size()) return part;
  graph::PartOfNode pieces(walk.nodes.size());
  std::vector<size_t> seen(size.size(), 0);
  for (const Node* node : graph::in_recording_order(walk)) {
    const uint32_t i = part_of(node);
    const uint32_t number = first[i + 1] - first[i];
    pieces[node->local] = first[i] + static_cast<uint32_t>(seen[i]++ * number / size[i]);
  }
  return pieces;
}

}  // namespace

Cut cut_of(const graph::Walk& walk, GraphKeys* networks) {
  using device::Mechanism;
  Cut cut{{}, "iterations of a loop"};
  if (device::is_on(Mechanism::kLoopRerolling)) cut.part = reroll_loops(walk);
  if (cut.part.empty() && networks) {
    cut = {around_a_network(walk), "a known network, and integer ops around it"};
    if (!cut.part.empty() && networks->count(middle_hash(walk, cut.part), walk) == 0) cut.part = {};
  }
  if (cut.part.empty()) cut.cause = "a graph too large for one program";
  cut.part = in_pieces(walk, cut.part);
  return cut;
}

}  // namespace tpjrt::engine
