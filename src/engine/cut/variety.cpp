// Cutting a graph where a call occurs again and again.
#include "engine/cut/variety.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

namespace tpjrt::engine {
namespace {

using graph::Node;
using graph::SignaturePtr;
using Calls = std::vector<const Node*>;

constexpr size_t kLeastOfGraph = 96;  // of a graph: fewer are soon compiled
constexpr size_t kMostOrders = 16;    // that are remembered
constexpr size_t kFewOrders = 3;      // that are compiled whole: a training may begin with some
constexpr size_t kLargePiece = 128;   // is cut further
constexpr size_t kSmallPiece = 16;    // calls, on average: running a program costs as much as recording some
constexpr size_t kFewestPieces = 4;

uint64_t hash_of_set(const graph::Walk& walk) {
  std::unordered_set<SignaturePtr> calls;
  uint64_t sum = 0;
  for (const Node* node : walk.nodes) {
    if (calls.insert(node->signature).second) sum += graph::mixed(0, reinterpret_cast<uint64_t>(node->signature));
  }
  return sum;
}

// The first call of a round in [first, last): most calls of a loop occur once in each round, so that the number of rounds is
// how often most calls occur. Null if nothing occurs often enough.
SignaturePtr beginning_of_round(const Calls& calls, size_t first, size_t last) {
  std::unordered_map<SignaturePtr, size_t> count;
  for (size_t i = first; i < last; ++i) ++count[calls[i]->signature];
  std::map<size_t, size_t> alike;  // by how often they occur: calls
  for (const auto& [call, times] : count) {
    if (times >= kFewestPieces && times * kSmallPiece <= last - first) ++alike[times];
  }
  if (alike.empty()) return nullptr;
  const size_t rounds = std::max_element(alike.begin(), alike.end(), [](const auto& a, const auto& b) {
                          return std::pair(a.second, a.first) < std::pair(b.second, b.first);
                        })->first;
  const auto begins = [&](const Node* node) { return count.at(node->signature) == rounds; };
  return (*std::find_if(calls.begin() + static_cast<int64_t>(first), calls.end(), begins))->signature;
}

// Adds the places in (first, last) where pieces begin.
void cut(const Calls& calls, size_t first, size_t last, std::vector<size_t>& begins) {
  if (last - first <= kLargePiece) return;
  const SignaturePtr call = beginning_of_round(calls, first, last);
  if (!call) return;
  std::vector<size_t> places{first};
  for (size_t i = first + 1; i < last; ++i) {
    if (calls[i]->signature == call) places.push_back(i);
  }
  places.push_back(last);
  for (size_t i = 0; i + 1 < places.size(); ++i) {
    if (i > 0) begins.push_back(places[i]);
    if (places[i + 1] - places[i] < last - first) cut(calls, places[i], places[i + 1], begins);
  }
}

}  // namespace

graph::PartOfNode Variety::find(const graph::Walk& walk, const std::function<bool(uint64_t)>& is_found_again) {
  if (walk.nodes.size() < kLeastOfGraph) return {};
  std::vector<uint64_t>& orders = orders_[hash_of_set(walk)];
  const auto again = static_cast<size_t>(std::count_if(orders.begin(), orders.end(), is_found_again));
  const bool varies = orders.size() >= kFewOrders && 2 * again < orders.size();
  if (orders.size() < kMostOrders) orders.push_back(walk.hash);
  if (!varies) return {};
  const Calls calls = graph::in_recording_order(walk);
  std::vector<size_t> begins;
  cut(calls, 0, calls.size(), begins);
  if (begins.empty()) return {};
  graph::PartOfNode part(walk.nodes.size());
  uint32_t piece = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (piece < begins.size() && begins[piece] == i) ++piece;
    part[calls[i]->local] = piece;
  }
  return part;
}

}  // namespace tpjrt::engine
