// Finding batches, and telling whether their patterns change.
#include "engine/cut/batch.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_set>

namespace tpjrt::engine {
namespace {

using graph::Node;
using graph::Value;

constexpr size_t kLeastPieces = 4;
constexpr size_t kMostTogether = 1024;
constexpr size_t kMostPatterns = 3;              // that are compiled as they are
constexpr size_t kMostBytes = size_t{16} << 20;  // of all that is moved
constexpr uint32_t kBatch = 0, kRest = 1;        // parts

// Does its result hold nothing but what its operands hold, or a constant?
bool only_moves(const Node& node) {
  constexpr std::array<std::string_view, 9> kMoving{"pjrt::empty",        "pjrt::view",  "pjrt::write",
                                                    "pjrt::convert",      "aten::cat",   "aten::stack",
                                                    "aten::fill_.Scalar", "aten::zero_", "aten::clone"};
  const graph::Signature& s = *node.signature;
  if (std::find(kMoving.begin(), kMoving.end(), s.name) == kMoving.end()) return false;
  // A leaf that is written to may be large, and would be copied.
  return (s.name != "pjrt::write" && s.mutated.empty()) || !node.operands[0].is_leaf();
}

// All that one value rests on.
struct Batch {
  std::vector<const Node*> nodes;
  size_t pieces = 0, nbytes = 0;
  uint64_t pattern = 0;
};

Batch batch_below(const Node* end) {
  Batch batch;
  std::unordered_map<const Node*, uint64_t> numbers;  // of nodes and leaves, in the order in which they are met
  const auto number = [&](const Node* node) { return numbers.try_emplace(node, numbers.size()).first->second; };
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> pending{end};
  while (!pending.empty() && batch.nbytes <= kMostBytes && batch.nodes.size() <= kMostTogether) {
    const Node* node = pending.back();
    pending.pop_back();
    if (!seen.insert(node).second) continue;
    batch.nodes.push_back(node);
    batch.nbytes += node->signature->results[0]->nbytes();
    batch.pattern =
        graph::mixed(graph::mixed(batch.pattern, reinterpret_cast<uint64_t>(node->signature)), number(node));
    for (const Value& operand : node->operands) {
      batch.pattern = graph::mixed(batch.pattern, number(operand.node.get()));
      if (operand.is_leaf()) {
        ++batch.pieces;
      } else {
        pending.push_back(operand.node.get());
      }
    }
  }
  return batch;
}

}  // namespace

graph::PartOfNode Batches::parts_of(const graph::Walk& walk) {
  graph::PartOfNode part(walk.nodes.size(), kRest);
  std::vector<char> moves(walk.nodes.size()), is_end(walk.nodes.size(), false);
  for (const Node* node : walk.nodes) {
    const auto rests_on_leaves = [&](const Value& operand) { return operand.is_leaf() || moves[operand.node->local]; };
    moves[node->local] =
        only_moves(*node) && std::all_of(node->operands.begin(), node->operands.end(), rests_on_leaves);
    if (moves[node->local]) continue;
    for (const Value& operand : node->operands) {
      if (!operand.is_leaf()) is_end[operand.node->local] = moves[operand.node->local];
    }
  }
  for (const Value& result : walk.results) {
    if (!result.is_leaf()) is_end[result.node->local] = moves[result.node->local];
  }
  for (const Node* node : walk.nodes) {
    if (!is_end[node->local]) continue;
    const Batch batch = batch_below(node);
    if (batch.pieces < kLeastPieces || batch.nbytes > kMostBytes || batch.nodes.size() > kMostTogether) continue;
    const graph::TypePtr type = node->signature->results[0];
    const uint64_t kind =
        graph::mixed(graph::mixed(std::hash<std::string>()(node->signature->name), type->sizes.size()),
                     static_cast<uint64_t>(type->dtype));
    std::vector<uint64_t>& patterns = patterns_[kind];
    if (std::find(patterns.begin(), patterns.end(), batch.pattern) != patterns.end()) continue;
    if (patterns.size() < kMostPatterns) {
      patterns.push_back(batch.pattern);
    } else {
      for (const Node* moved : batch.nodes) part[moved->local] = kBatch;
    }
  }
  return part;
}

graph::PartOfNode Batches::find(const graph::Walk& walk) {
  graph::PartOfNode part = parts_of(walk);
  const bool has_both = std::ranges::count(part, kBatch) > 0 && std::ranges::count(part, kRest) > 0;
  return has_both ? part : graph::PartOfNode{};
}

bool Batches::is_all(const graph::Walk& walk) { return std::ranges::count(parts_of(walk), kRest) == 0; }

}  // namespace tpjrt::engine
