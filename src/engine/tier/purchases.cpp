// Counts the cost of single calls as programs and on the host.
#include "engine/tier/purchases.h"

#include <algorithm>
#include <unordered_set>

namespace tpjrt::engine {

using graph::Node;

namespace {

// Returns the time that the call's program would have saved.
int64_t lost_on_host(const Node& node) { return std::max<int64_t>(0, cost_on_host(node) - cost_launched(node)); }

}  // namespace

int64_t Purchases::missing(const graph::Walk& walk) const {
  int64_t sum = 0;
  std::unordered_set<graph::SignaturePtr> seen;
  for (const Node* node : walk.nodes) {
    if (is_of_few_integers(*node) || !seen.insert(node->signature).second) continue;
    const auto it = spent_.find(node->signature);
    sum += std::max<int64_t>(0, cost_alone(*node) - (it == spent_.end() ? 0 : it->second.compiling));
  }
  return sum;
}

ByOneCall Purchases::calls_of(const graph::Walk& walk, const Cost& cost, CallsBy by) const {
  if (by != CallsBy::kPrograms) {
    ByOneCall calls = by_either(walk);
    if (by == CallsBy::kEither) calls.cost = std::max(calls.cost, cost.calls + missing(walk));
    return calls;
  }
  ByOneCall calls{cost.calls + missing(walk), std::vector<bool>(walk.nodes.size())};
  for (size_t i = 0; i < walk.nodes.size(); ++i) calls.on_host[i] = is_of_few_integers(*walk.nodes[i]);
  return calls;
}

ByOneCall Purchases::by_either(const graph::Walk& walk) const {
  ByOneCall calls{0, std::vector<bool>(walk.nodes.size())};
  std::unordered_map<graph::SignaturePtr, Spent> spent;  // including this run's
  for (size_t i = 0; i < walk.nodes.size(); ++i) {
    const Node& node = *walk.nodes[i];
    const auto before = spent_.find(node.signature);
    Spent& one = spent.try_emplace(node.signature, before == spent_.end() ? Spent() : before->second).first->second;
    const int64_t lost = lost_on_host(node);
    const bool pays = is_of_few_integers(node) || (!one.alone && one.lost + lost < cost_alone(node));
    calls.on_host[i] = pays && has_kernel_(node.signature);
    if (calls.on_host[i]) {
      one.lost += lost;
      calls.cost += cost_on_host(node);
    } else {
      calls.cost += cost_launched(node) + (one.alone ? 0 : cost_alone(node));
      one.alone = true;
    }
  }
  return calls;
}

void Purchases::ran(const graph::Walk& walk, const std::vector<bool>& on_host) {
  for (size_t i = 0; i < walk.nodes.size(); ++i) {
    const Node& node = *walk.nodes[i];
    Spent& spent = spent_[node.signature];
    if (on_host[i]) {
      spent.lost += lost_on_host(node);
    } else {
      spent.compiling = std::max(spent.compiling, cost_alone(node));
      spent.alone = true;
    }
  }
}

void Purchases::compiled(const graph::Walk& walk) {
  for (const Node* node : walk.nodes) spent_[node->signature].compiling += cost_within(*node);
}

}  // namespace tpjrt::engine
