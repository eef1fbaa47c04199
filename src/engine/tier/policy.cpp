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

int64_t GraphProfiles::share(const GraphProfile& graph) const {
  return overlaps() ? graph.cost.compile / 4 : graph.cost.compile;
}

std::string GraphProfiles::description(const GraphProfile& graph) const {
  const Cost& cost = graph.cost;
  const int64_t gain = cost.calls - cost.program, step = cost.record + cost.calls;
  const auto times = [](int64_t whole, int64_t part) { return std::max<int64_t>(0, (whole + part - 1) / part); };
  std::string of;
  if (graph.due != 0) {
    of = std::to_string(graph.executions + times(graph.due - now_, step));
  } else if (gain > 0) {
    const int64_t waits = overlaps() ? times(std::max(now_, free_at_) - now_ + cost.compile, step) : 0;
    of = std::to_string(graph.executions + times(share(graph) - graph.accrued - gain, gain) + waits);
  }
  return std::to_string(graph.executions) + (of.empty() ? "" : " of " + of) + " interpreted";
}

std::shared_ptr<GraphProfile> GraphProfiles::count_execution(const graph::Walk& walk, InterpretBy by) {
  if (graphs_.size() >= kMostGraphs) {
    std::erase_if(graphs_, [](const auto& entry) { return entry.second->executions == 1; });
    if (graphs_.size() >= kMostGraphs) graphs_.clear();
  }
  std::shared_ptr<GraphProfile>& graph = graphs_[walk.hash];
  if (!graph) {
    graph = std::make_shared<GraphProfile>();
    graph->cost = predicted_cost(walk, by);
  }
  ++graph->executions;
  return graph;
}

GraphProfiles::TierDecision GraphProfiles::decide(GraphProfile& graph) {
  const Cost& cost = graph.cost;
  const int64_t accrued = graph.accrued + std::max<int64_t>(0, cost.calls - cost.program);
  TierDecision decision = TierDecision::kInterpret;
  if (compile_policy() == CompilePolicy::kNever || stays_in_one_tier()) {
    decision = TierDecision::kInterpret;
  } else if (graph.amortized || (graph.due != 0 ? now_ >= graph.due : accrued >= cost.compile)) {
    decision = TierDecision::kProgram;
  } else if (graph.due == 0 && graph.executions > 1 && accrued >= share(graph)) {
    decision = TierDecision::kInterpretAndCompile;
    graph.due = free_at_ = std::max(now_, free_at_) + cost.compile;
  }
  const bool interpreted = decision != TierDecision::kProgram;
  if (interpreted) graph.accrued = accrued;
  now_ += cost.record + (interpreted ? cost.calls : cost.program);
  return decision;
}

}  // namespace tpjrt::engine
