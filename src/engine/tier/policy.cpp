// Counting graphs.
#include "engine/tier/policy.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <string>

namespace tpjrt::engine {
namespace {

constexpr size_t kMostGraphs = size_t{1} << 16;

std::atomic<CompilePolicy>& policy() {
  static std::atomic<CompilePolicy> value{[] {
    const char* name = std::getenv("TORCH_PJRT_COMPILE");
    return name && *name ? compile_policy_named(name) : CompilePolicy::kFirst;
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
  const int64_t runs = (cost.compile_ns - 1) / cost.by_calls_ns;
  return std::to_string(met) + " of " + std::to_string(runs) + " by calls";
}

std::shared_ptr<MetGraph> MetGraphs::meet(const graph::Walk& walk) {
  if (graphs_.size() >= kMostGraphs) {
    std::erase_if(graphs_, [](const auto& entry) { return entry.second->met == 1; });
    if (graphs_.size() >= kMostGraphs) graphs_.clear();
  }
  std::shared_ptr<MetGraph>& graph = graphs_[walk.hash];
  if (!graph) {
    graph = std::make_shared<MetGraph>();
    graph->cost = predicted_cost(walk);
  }
  ++graph->met;
  return graph;
}

}  // namespace tpjrt::engine
