// Compiles a trace into a program.
#include <c10/util/Exception.h>

#include <unordered_map>
#include <utility>

#include "device/tensor/storage.h"
#include "engine/compiled_call/compiled_graph.h"
#include "engine/memory/outside_memory.h"
#include "engine/replication/same_step.h"
#include "engine/session/session.h"
#include "graph/world/world.h"

namespace tpjrt::engine {

using graph::Value;

CompiledGraph::CompiledGraph(Session& session, const Trace& trace, const std::vector<TracedResult>& results,
                             c10::Device random_device, const std::vector<at::Tensor>& also)
    : session_(session), forms_(trace.arguments.begin(), trace.arguments.end()), device_(trace.device) {
  // A world uses no CPU memory in place, because each rank has its own.
  const bool is_host_memory = session_.client().is_host_memory() && !graph::in_world();
  std::vector<Value> values;  // the program's results
  std::vector<graph::Update> updates;
  std::vector<int64_t> new_values(trace.arguments.size(), -1);
  bool on_device = false;  // some argument is there
  size_t given = 0;        // number of values that the caller gets
  for (size_t i = 0; i < trace.arguments.size(); ++i) {
    const TracedArgument& argument = trace.arguments[i];
    if (!argument.is_tensor) continue;
    if (!argument.device.is_cpu()) device_ = argument.placeholder.device().index();
    if (argument.device.is_cuda()) cuda_ = argument.device;
    on_device |= !is_outside(argument.device);
    Value value = trace.new_value(i);
    if (!value) continue;
    mutated_.push_back(static_cast<uint32_t>(i));
    new_values[i] = static_cast<int64_t>(values.size());
    const bool may_be_flattened = argument.device.is_cpu() && is_host_memory;
    updates.push_back({argument.leaf.get(), static_cast<uint32_t>(values.size()), may_be_flattened});
    values.push_back(std::move(value));
    waits_ |= argument.device.is_cpu();
  }
  {
    std::lock_guard lock(graph::graph_lock());
    returned_.emplace(results, trace.arguments, values);
    given = values.size();
    for (const at::Tensor& tensor : also) values.push_back(device::storage_of(tensor)->slot.value());
  }
  waits_ |= returned_->any_on_cpu();
  if (const auto cuda = returned_->cuda()) cuda_ = cuda;
  const std::vector<uint32_t> supplied = is_host_memory ? returned_->choose_supplied(values) : std::vector<uint32_t>{};
  graph::Walk walk;
  session_.exclusively([&] {
    {
      std::lock_guard lock(graph::graph_lock());
      graph::walk_trace(values, updates, supplied, walk);
    }
    program_ = session_.programs.find_or_compile(walk);
    if (graph::in_world()) replication_analysis_.emplace(walk);
  });
  check_same_step(session_, walk, *program_);
  if (program_->assertions)
    waits_ |= !on_device && !cuda_;  // runtime assertions about CPU tensors may be all that the program does
  scalars_ = walk.scalars;
  if (replication_analysis_) given_.resize(walk.leaves.size());
  num_leaves_ = walk.leaves.size();
  sources_ = *program_->sources;
  for (size_t i = given; i < values.size(); ++i) sources_->add_to_all(i);  // an assertion is the whole function's
  keys_.emplace(scalars_, random_device, device_);
  bind_leaves(walk, trace, new_values);
}

void CompiledGraph::bind_leaves(const graph::Walk& walk, const Trace& trace, const std::vector<int64_t>& new_values) {
  std::unordered_map<const graph::Node*, uint32_t> by_leaf;
  for (size_t i = 0; i < trace.arguments.size(); ++i) {
    if (trace.arguments[i].is_tensor) by_leaf.emplace(trace.arguments[i].leaf.get(), static_cast<uint32_t>(i));
  }
  const std::vector<int64_t> argument_places = graph::argument_places(walk), places = graph::result_places(walk);
  std::vector<bool> updated(trace.arguments.size()), donated(walk.leaves.size());
  for (const graph::Walk::Alias& alias : walk.aliases) donated[alias.leaf] = true;
  for (size_t i = 0; i < walk.leaves.size() - returned_->num_supplied(); ++i) {
    const graph::NodePtr& leaf = walk.leaves[i];
    const auto at = by_leaf.find(leaf.get());
    if (at != by_leaf.end()) updated[at->second] = true;
    if (argument_places[i] < 0) continue;  // in a flattened state
    leaf_of_bound_.push_back(static_cast<uint32_t>(i));
    if (at == by_leaf.end()) {
      bound_.push_back(bound_constant(leaf));
      continue;
    }
    const uint32_t argument = at->second;
    const int64_t value = new_values[argument];
    bound_.push_back(bound_argument(trace.arguments[argument].device, argument, leaf->leaf_type,
                                    value < 0 ? -1 : places[static_cast<size_t>(value)], donated[i]));
    if (bound_.back()->is_readied()) readied_.push_back(bound_.back().get());
    if (value >= 0) updated_.push_back(bound_.back().get());
  }
  // An argument that is written but never read has no parameter. Its new value must be stored all the same.
  for (uint32_t i = 0; i < trace.arguments.size(); ++i) {
    if (new_values[i] < 0 || updated[i]) continue;
    const auto result = static_cast<size_t>(new_values[i]);
    written_.push_back(bound_argument(trace.arguments[i].device, i, walk.results[result].type(), places[result],
                                      /*donated=*/false));
    updated_.push_back(written_.back().get());
  }
  for (const Returned::OnCpu& copied : returned_->on_cpu()) outside_.push_back(copied.result);
  for (const uint32_t argument : mutated_) {
    if (trace.arguments[argument].device.is_cpu()) outside_.push_back(static_cast<uint32_t>(new_values[argument]));
  }
  returned_->place(places);
  places_ = places;
  on_cpu_ = returned_->on_cpu();
  for (const uint32_t argument : mutated_) {
    if (trace.arguments[argument].device.is_cpu()) {
      on_cpu_.push_back({static_cast<uint32_t>(places[static_cast<size_t>(new_values[argument])]),
                         "the new value of argument " + std::to_string(argument)});
    }
  }
  auto next = static_cast<uint32_t>(graph::count_of_own(places));
  for (const graph::FlattenedState& state : walk.states) {
    BoundFlattenedState bound(state, next++);
    for (const graph::FlattenedState::Member& member : state.members)
      bound.arguments.push_back(by_leaf.at(walk.leaves[member.leaf].get()));
    flattened_states_.push_back(std::move(bound));
  }
}

}  // namespace tpjrt::engine
