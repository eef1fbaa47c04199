// Lowers a trace to program texts and describes their arguments and results.
#include "engine/compiled_call/export_trace.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "device/tensor/storage.h"
#include "engine/lower/control_flow.h"
#include "engine/lower/foreign_module.h"
#include "engine/memory/device_data.h"
#include "engine/session/session.h"

namespace tpjrt::engine {

ExportedTrace export_trace(Session& session, const Trace& trace, const std::vector<at::Tensor>& results) {
  ExportedTrace exported;
  std::vector<graph::Value> values;
  for (const at::Tensor& tensor : results) {
    TORCH_CHECK(device::is_pjrt(tensor), "an exported function gave a tensor on ", tensor.device());
    values.push_back(contiguous_value(tensor.resolve_conj().resolve_neg()));
  }
  std::vector<graph::Update> updates;
  for (size_t i = 0; i < trace.arguments.size(); ++i) {
    graph::Value value = trace.new_value(i);
    if (!value) continue;
    updates.push_back({trace.arguments[i].leaf.get(), static_cast<uint32_t>(values.size())});
    exported.updated.push_back(static_cast<int64_t>(i));
    values.push_back(std::move(value));
  }
  graph::Walk walk;
  const auto emit = [&] {
    session.exclusively([&] {
      {
        std::lock_guard lock(graph::graph_lock());
        graph::walk_trace(values, updates, {}, walk);
      }
      exported.texts = session.programs.exported(walk);
    });
  };
  emit();
  if (const auto unchanged = exported.texts[0].unchanged;
      !unchanged.empty()) {  // such as the statistics that batch norm reads in eval mode
    std::vector<graph::Value> kept(values.begin(), values.begin() + static_cast<int64_t>(results.size()));
    std::vector<graph::Update> kept_updates;
    std::vector<int64_t> kept_arguments;
    for (size_t i = 0; i < updates.size(); ++i) {
      if (std::find(unchanged.begin(), unchanged.end(), updates[i].result) != unchanged.end()) continue;
      kept_updates.push_back({updates[i].leaf, static_cast<uint32_t>(kept.size())});
      kept_arguments.push_back(exported.updated[i]);
      kept.push_back(values[updates[i].result]);
    }
    values = std::move(kept);
    updates = std::move(kept_updates);
    exported.updated = std::move(kept_arguments);
    emit();
  }
  std::unordered_map<const graph::Node*, int64_t> by_leaf;
  for (size_t i = 0; i < trace.arguments.size(); ++i) {
    by_leaf.emplace(trace.arguments[i].leaf.get(), static_cast<int64_t>(i));
  }
  for (const graph::NodePtr& leaf : walk.leaves) {
    const auto at = by_leaf.find(leaf.get());
    if (at != by_leaf.end()) {
      exported.parameters.push_back(at->second);
      continue;
    }
    exported.constants.push_back(tensor_over_leaf(leaf.get(), 0));
    exported.parameters.push_back(-static_cast<int64_t>(exported.constants.size()));
  }
  return exported;
}

}  // namespace tpjrt::engine
