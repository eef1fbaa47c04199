// Counts executions of graphs and decides their tier.
#include "engine/tier/policy.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>

namespace tpjrt::engine {
namespace {

constexpr size_t kMostGraphs = size_t{1} << 16;
constexpr int64_t kBegins = 4;  // a background compile begins when this part of its price is paid

std::atomic<CompilePolicy>& policy() {
  static std::atomic<CompilePolicy> value{[] {
    const char* name = std::getenv("TORCH_PJRT_COMPILE");
    return name && *name ? compile_policy_named(name) : CompilePolicy::kAuto;
  }()};
  return value;
}

std::atomic<bool> growing_is_interpreted{true};

}  // namespace

CompilePolicy compile_policy_named(const std::string& name) {
  if (name == "auto") return CompilePolicy::kAuto;
  if (name == "first") return CompilePolicy::kFirst;
  if (name == "never") return CompilePolicy::kNever;
  TORCH_CHECK_VALUE(false, "TORCH_PJRT_COMPILE=", name, ": it is 'auto', 'first' or 'never' (docs/environment.md)");
}

CompilePolicy compile_policy() { return policy(); }
void set_compile_policy(CompilePolicy value) { policy() = value; }
bool interprets_growing() { return growing_is_interpreted; }
void set_interprets_growing(bool value) { growing_is_interpreted = value; }
bool stays_in_one_tier() { return at::globalContext().deterministicAlgorithms(); }

bool GraphProfiles::overlaps() const {
  if (processors_ == 0) {
    cpu_set_t usable;
    processors_ = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1;
  }
  return processors_ > 1;
}

std::string GraphProfiles::description(const GraphProfile& graph) const {
  const int64_t rent = graph.cost.rent;
  std::string text = std::to_string(graph.executions);
  if (rent > 0) {
    const int64_t left = std::max<int64_t>(0, graph.cost.compile - graph.paid);
    text += " of " + std::to_string(graph.executions + std::max<int64_t>(0, (left + rent - 1) / rent - 1));
  }
  return text + " interpreted";
}

std::shared_ptr<GraphProfile>& GraphProfiles::of(const graph::Walk& walk) {
  if (graphs_.size() >= kMostGraphs) {
    std::erase_if(graphs_, [](const auto& entry) { return entry.second->executions <= 1; });
    if (graphs_.size() >= kMostGraphs) graphs_.clear();
  }
  std::shared_ptr<GraphProfile>& graph = graphs_[walk.hash];
  if (!graph) graph = std::make_shared<GraphProfile>();
  return graph;
}

Cut GraphProfiles::cut(const graph::Walk& walk, InterpretBy by) {
  if (walk.nodes.size() < kLeastToCut) return {};
  std::optional<Cut>& cut = of(walk)->cut;
  if (!cut) cut = cut_of(walk, by == InterpretBy::kCopies ? &keys_ : nullptr);
  return cut->part.size() == walk.nodes.size() ? *cut : Cut{};  // otherwise uncut, or another graph has this hash
}

std::shared_ptr<GraphProfile> GraphProfiles::count_execution(const graph::Walk& walk, InterpretBy by) {
  std::shared_ptr<GraphProfile>& graph = of(walk);
  if (++graph->executions == 1) graph->cost = predicted_cost(work_of(walk, by), prices_of(by));
  return graph;
}

GraphProfiles::TierDecision GraphProfiles::decide(GraphProfile& graph) const {
  const bool stays = compile_policy() == CompilePolicy::kNever || stays_in_one_tier();
  if (!stays && (graph.amortized || graph.paid + graph.cost.rent >= graph.cost.compile)) return TierDecision::kProgram;
  graph.paid += graph.cost.rent;
  const bool begins = !stays && !graph.begun && graph.executions > 1 && graph.paid >= graph.cost.compile / kBegins;
  if (!begins || !overlaps()) return TierDecision::kInterpret;
  graph.begun = true;
  return TierDecision::kInterpretAndCompile;
}

}  // namespace tpjrt::engine
