// Splits graphs that are too large, and remembers how graphs are cut.
#include "engine/cut/cuts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/cut/loop_rerolling.h"

namespace tpjrt::engine {
namespace {

using graph::Node;

constexpr size_t kLeastToCut = 48;       // calls of a graph that is cut; smaller ones compile quickly
constexpr size_t kMostOfProgram = 4000;  // calls
constexpr size_t kMostFound = size_t{1} << 14;

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

Cut Cuts::find(const graph::Walk& walk) {
  if (walk.nodes.size() < kLeastToCut) return {};
  if (const auto it = found_.find(walk.hash); it != found_.end()) {
    const bool fits = it->second.part.size() == walk.nodes.size();  // otherwise another graph has this hash
    return fits ? it->second : Cut{};
  }
  if (found_.size() == kMostFound) found_.clear();
  Cut cut{reroll_loops(walk), "iterations of a loop"};
  if (cut.part.empty()) cut = {integer_ops_.find(walk), "a known network, and integer ops around it"};
  if (cut.part.empty()) cut.cause = "a graph too large for one program";
  cut.part = in_pieces(walk, cut.part);
  return found_.emplace(walk.hash, std::move(cut)).first->second;
}

}  // namespace tpjrt::engine
