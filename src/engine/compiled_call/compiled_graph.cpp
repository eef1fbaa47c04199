// Compiles a trace into a program, and calls it.
#include "engine/compiled_call/compiled_graph.h"

#include <c10/util/ApproximateClock.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "device/services/engine.h"
#include "device/start/eager.h"
#include "device/tensor/storage.h"
#include "engine/memory/cuda.h"
#include "engine/memory/host_memory.h"
#include "engine/replication/replication.h"
#include "engine/replication/same_step.h"
#include "engine/session/session.h"
#include "graph/signature.h"

namespace tpjrt::engine {

bool CompiledGraph::matches(const std::vector<Given>& given) const {
  if (given.size() != forms_.size()) return false;
  for (size_t i = 0; i < given.size(); ++i) {
    const ArgumentSpec& form = forms_[i];
    if (!given[i].tensor) {
      if (form.is_tensor || given[i].number != form.number) return false;
      continue;
    }
    const c10::TensorImpl& tensor = *given[i].tensor->unsafeGetTensorImpl();
    if (!form.is_tensor || tensor.layout() != c10::kStrided || tensor.sizes() != c10::IntArrayRef(form.sizes) ||
        tensor.strides() != c10::IntArrayRef(form.strides) || tensor.dtype() != form.dtype ||
        tensor.device() != form.device || tensor.is_conj() != form.conjugate || tensor.is_neg() != form.negative) {
      return false;
    }
  }
  return true;
}

// Computes pending values first, in one sync.
void CompiledGraph::ready(CallState& call) {
  if (!call.pending.empty()) device::engine().sync(call.pending, "a call of a compiled graph");
  if (call.queued) call.order = cuda::after_current_stream(call.client, call.device, *call.queued);
}

bool CompiledGraph::record(CallState& call, std::vector<at::Tensor>& results) {
  if (!recorded_ || call.pending.empty()) return false;
  std::vector<graph::Value> values(bound_.size());
  {
    std::lock_guard lock(graph::graph_lock());
    for (size_t i = 0; i < bound_.size(); ++i) {
      values[i] = bound_[i]->value();
      const graph::ComponentPtr& component = values[i].node->component;
      if (component && graph::Component::root(component.get())->nodes >= device::most_nodes) return false;
    }
    values = recorded_->record(values);
  }
  returned_->give_recorded(call, values, results);
  return true;
}

void CompiledGraph::bind(CallState& call) {
  for (const auto& bound : bound_) launch_.arguments.push_back(&bound->bind(call));
  returned_->bind(call);
  for (BoundFlattenedState& state : flattened_states_) {
    for (size_t i = 0; i < state.arguments.size(); ++i) state.put(i, call.tensor(state.arguments[i]));
    launch_.arguments.push_back(state.bind(call.client, call.device));
  }
  keys_->draw(scalars_);
  if (!keys_->empty() || !packed_.made()) packed_.make(call.client, *program_, scalars_);
  packed_.append_to(launch_.arguments);
  if (replication_analysis_) analyze_replication(call);
}

void CompiledGraph::analyze_replication(CallState& call) {
  std::vector<Replication> given(given_.size());
  for (size_t i = 0; i < bound_.size(); ++i) given[leaf_of_bound_[i]] = bound_[i]->replication();
  if (replicated_.empty() || given != given_) {
    const std::vector<Replication> values = replication_analysis_->results(given);
    replicated_.assign(values.size(), nullptr);
    for (size_t i = 0; i < values.size(); ++i) {
      if (places_[i] >= 0) replicated_[static_cast<size_t>(places_[i])] = values[i];
    }
    given_ = std::move(given);
  }
  call.replicated = &replicated_;
  for (const Returned::OnCpu& copied : on_cpu_) {
    const Replication& replicated = replicated_[copied.result];
    if (!replicated) continue;
    const char* cure =
        is_promised(replicated)
            ? " ranks of this world are promised to have equal values, which a read compares and a copy "
              "within a program doesn't; leave it on 'pjrt', and call cpu() outside of the function"
            : " ranks of this world have values of their own; leave it on 'pjrt', or reduce it first, as "
              "full_tensor() of a DTensor or torch.distributed.all_reduce do";
    TORCH_CHECK(false, "a compiled function gives the CPU ", copied.name, ", of which the ",
                session_.client().replicas(), cure);
  }
}

void CompiledGraph::check(CallState& call) {
  run_ = launch_.run;
  if (!run_ && !call.any_checks) return;
  std::vector<ChecksPtr> leaves;
  if (call.any_checks) {
    leaves.resize(num_leaves_);
    for (size_t i = 0; i < bound_.size(); ++i) leaves[leaf_of_bound_[i]] = bound_[i]->checks();
  }
  values_ = sources_->checks(leaves, run_);
  checks_.resize(values_.size());
  for (size_t i = 0; i < values_.size(); ++i) {
    if (places_[i] >= 0) checks_[static_cast<size_t>(places_[i])] = values_[i];
  }
  call.checks = &checks_;
}

void CompiledGraph::raise_failed(const std::vector<ChecksPtr>& values, const std::shared_ptr<RunChecks>& run) {
  const uint32_t failed = run ? run->first_failed() : RunChecks::kNone;
  if (failed != RunChecks::kNone)
    run->set_all_reported();  // the call raises one of its errors, and no later read another
  for (const uint32_t value : outside_) {
    if (!values.empty() && values[value]) values[value]->raise();
  }
  if (failed != RunChecks::kNone) run->raise(failed);
  session_.assertions.raise_lost();
}

// Stores the new values of arguments that the program did not update in place.
void CompiledGraph::update(CallState& call) {
  for (BoundArgument* bound : updated_) bound->update(call, launch_.results[static_cast<size_t>(bound->result())]);
  for (BoundFlattenedState& state : flattened_states_) {
    state.take(launch_.results);
    for (size_t i = 0; i < state.arguments.size(); ++i) state.get(i, call.tensor(state.arguments[i]));
  }
}

// Keeps buffers over memory that the last call used for the next call, if it succeeded.
void CompiledGraph::release(bool went_well) {
  launch_.clear();
  checks_.clear();
  if (!went_well) {
    values_.clear();
    run_.reset();
    for (BoundFlattenedState& state : flattened_states_) state.let_go();
    returned_->let_go();
    holding_.clear();
    for (const auto& bound : bound_) holding_.push_back(bound.get());
    for (const auto& bound : written_) holding_.push_back(bound.get());
  }
  for (BoundArgument* bound : holding_) bound->release(went_well);
  holding_.clear();
}

void CompiledGraph::call(const std::vector<Given>& given, std::vector<at::Tensor>& results, bool may_record) {
  check_process();
  const device::Location where = session_.logged_location();
  session_.without_gil([&] {
    std::lock_guard guard(lock_);
    if (until_trim_ > 0 && --until_trim_ == 0) return_freed_memory();  // left by tracing, and by earlier steps
    try {
      CallState call{session_.client(), given, launch_, static_cast<size_t>(device_), holding_};
      for (BoundArgument* bound : readied_) bound->ready(call);
      if (may_record && record(call, results)) return release(true);
      if (!readied_.empty()) ready(call);
      const bool logged = session_.run_log.is_on();
      const int64_t start = logged ? c10::getTime(/*allow_monotonic=*/true) : 0;
      launch_.clear();
      bind(call);
      if (cuda_) launch_.add_lender(cuda::current_stream(*cuda_));  // for the results
      launch(session_, *program_, launch_, waits_ ? Until::kReady : Until::kStarted,
             mutated_.empty() ? "" : "What it updates in place may have lost its values.");
      const int64_t spent = logged ? c10::getTime(true) - start : 0;
      check(call);
      update(call);
      returned_->give(call, results);
      if (logged) {
        session_.run_log.ran(*program_, "a call of a compiled graph", where, spent, call.copied_bytes);
      }
    } catch (...) {
      release(false);
      throw;
    }
    release(true);
    const std::vector<ChecksPtr> values = std::exchange(values_, {});
    const std::shared_ptr<RunChecks> run = std::exchange(run_, nullptr);
    if (waits_) raise_failed(values, run);
  });
}

using graph::Value;

CompiledGraph::CompiledGraph(Session& session, const Trace& trace, const std::vector<TracedResult>& results,
                             c10::Device random_device, const std::vector<at::Tensor>& also)
    : session_(session), forms_(trace.arguments.begin(), trace.arguments.end()), device_(trace.device) {
  const bool shares_memory = session_.client().shares_memory();
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
    const bool may_be_flattened = argument.device.is_cpu() && shares_memory;
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
  const std::vector<uint32_t> supplied = shares_memory ? returned_->choose_supplied(values) : std::vector<uint32_t>{};
  graph::Walk walk;
  session_.exclusively([&] {
    {
      std::lock_guard lock(graph::graph_lock());
      graph::walk_trace(values, updates, supplied, walk);
    }
    walk.is_awaited = waits_;
    program_ = session_.programs.find_or_compile(walk);
    if (program_->executable->replicas() > 1) replication_analysis_.emplace(walk);
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
  const std::vector<Value> storages = returned_->of_storages(values);
  bind_leaves(walk, trace, new_values, waits_ && shares_memory);
  // Returning memory takes up to 60 ms where many small blocks are free.
  constexpr size_t kLarge = size_t{64} << 20;
  size_t bytes = 0;
  for (const graph::NodePtr& leaf : walk.leaves) bytes += leaf->leaf_type->nbytes();
  if (returned_->num_supplied() > 0 || bytes >= kLarge) until_trim_ = 2;
  const bool is_pure = mutated_.empty() && also.empty() && !replication_analysis_;
  const bool is_elsewhere =
      cuda_ || returned_->any_on_cpu() ||
      std::any_of(forms_.begin(), forms_.end(), [](auto& form) { return form.is_tensor && is_outside(form.device); });
  if (!is_pure || is_elsewhere) return;
  std::vector<const graph::Node*> arguments;
  for (const uint32_t leaf : leaf_of_bound_) arguments.push_back(walk.leaves[leaf].get());
  recorded_ = RecordedCall::of(storages, arguments);
}

void CompiledGraph::bind_leaves(const graph::Walk& walk, const Trace& trace, const std::vector<int64_t>& new_values,
                                bool in_place) {
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
                                    value < 0 ? -1 : places[static_cast<size_t>(value)], donated[i], in_place));
    if (bound_.back()->is_readied()) readied_.push_back(bound_.back().get());
    if (value >= 0) updated_.push_back(bound_.back().get());
  }
  // An argument that is written but never read has no parameter. Its new value must be stored all the same.
  for (uint32_t i = 0; i < trace.arguments.size(); ++i) {
    if (new_values[i] < 0 || updated[i]) continue;
    const auto result = static_cast<size_t>(new_values[i]);
    written_.push_back(bound_argument(trace.arguments[i].device, i, walk.results[result].type(), places[result],
                                      /*donated=*/false, in_place));
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
