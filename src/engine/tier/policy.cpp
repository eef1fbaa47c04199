// Counting graphs.
#include "engine/tier/policy.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <unordered_set>

namespace tpjrt::engine {
namespace {

constexpr size_t kMostGraphs = size_t{1} << 16;

std::atomic<CompilePolicy>& policy() {
  static std::atomic<CompilePolicy> value{[] {
    const char* name = std::getenv("TORCH_PJRT_COMPILE");
    return name && *name ? compile_policy_named(name) : CompilePolicy::kAuto;
  }()};
  return value;
}

}  // namespace

CompilePolicy compile_policy_named(const std::string& name) {
  if (name == "first") return CompilePolicy::kFirst;
  if (name == "auto") return CompilePolicy::kAuto;
  if (name == "ready") return CompilePolicy::kReady;
  TORCH_CHECK_VALUE(false, "TORCH_PJRT_COMPILE=", name, ": it is 'first', 'auto' or 'ready' (docs/environment.md)");
}

CompilePolicy compile_policy() { return policy(); }
void set_compile_policy(CompilePolicy value) { policy() = value; }

std::string MetGraph::told() const {
  const int64_t more = std::max<int64_t>(0, (cost.compile - spent - 1) / cost.calls);
  return std::to_string(met) + " of " + std::to_string(met + more) + " by calls";
}

std::shared_ptr<MetGraph> MetGraphs::meet(const graph::Walk& walk, CallsBy by) {
  if (graphs_.size() >= kMostGraphs) {
    std::erase_if(graphs_, [](const auto& entry) { return entry.second->met == 1; });
    if (graphs_.size() >= kMostGraphs) graphs_.clear();
  }
  std::shared_ptr<MetGraph>& graph = graphs_[walk.hash];
  if (!graph) {
    graph = std::make_shared<MetGraph>();
    graph->cost = predicted_cost(walk, by);
  }
  ++graph->met;
  return graph;
}

bool MetGraphs::takes_calls(const graph::Walk& walk, MetGraph& graph, CallsBy by) {
  const int64_t now = graph.cost.calls + (by == CallsBy::kPrograms ? missing(walk) : 0);
  const bool calls = !graph.paid && graph.spent + now < graph.cost.compile;
  if (calls) graph.spent += now;
  if (by == CallsBy::kPrograms) {
    for (const graph::Node* node : walk.nodes) {
      int64_t& spent = spent_[node->signature];
      spent = calls ? std::max(spent, cost_alone(*node)) : spent + cost_within(*node);
    }
  }
  return calls;
}

int64_t MetGraphs::missing(const graph::Walk& walk) const {
  int64_t sum = 0;
  std::unordered_set<graph::SignaturePtr> seen;
  for (const graph::Node* node : walk.nodes) {
    if (is_of_few_integers(*node) || !seen.insert(node->signature).second) continue;
    const auto it = spent_.find(node->signature);
    sum += std::max<int64_t>(0, cost_alone(*node) - (it == spent_.end() ? 0 : it->second));
  }
  return sum;
}

}  // namespace tpjrt::engine
