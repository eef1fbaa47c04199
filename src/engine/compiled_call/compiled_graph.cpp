// Calls a compiled trace.
#include "engine/compiled_call/compiled_graph.h"

#include <c10/util/ApproximateClock.h>

#include <utility>

#include "device/services/engine.h"
#include "engine/memory/cuda.h"
#include "engine/memory/host_memory.h"
#include "engine/session/session.h"
#include "graph/world/world.h"

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
  for (BoundArgument* bound : readied_) bound->ready(call);
  if (!call.pending.empty()) device::engine().sync(call.pending, "a call of a compiled graph");
  if (call.queued) call.order = cuda::after_current_stream(call.client, call.device, *call.queued);
}

void CompiledGraph::bind(CallState& call) {
  for (const auto& bound : bound_) {
    const pjrt::Buffer& buffer = bound->bind(call);
    if (replication_analysis_) {
      launch_.in_world.push_back(&buffer);
    } else {
      launch_.arguments.push_back(buffer.handle());
    }
  }
  returned_->bind(call);
  for (BoundFlattenedState& state : flattened_states_) {
    for (size_t i = 0; i < state.arguments.size(); ++i) state.put(i, call.tensor(state.arguments[i]));
    launch_.arguments.push_back(state.bind(call.client, call.device));
  }
  keys_->draw(scalars_);
  if (!keys_->empty() || !packed_.made()) packed_.make(call.client, *program_, scalars_);
  if (replication_analysis_) {
    packed_.append_to(launch_.in_world);
    analyze_replication(call);
  } else {
    packed_.append_to(launch_.arguments);
  }
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
    TORCH_CHECK(false, "a compiled function gives the CPU ", copied.name, ", of which the ", graph::world_size().load(),
                cure);
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

void CompiledGraph::call(const std::vector<Given>& given, std::vector<at::Tensor>& results) {
  check_process();
  const device::Location where = session_.logged_location();
  session_.without_gil([&] {
    std::lock_guard guard(lock_);
    if (calls_ < 2 && ++calls_ == 2 && returned_->num_supplied() > 0) return_freed_memory();  // left by tracing
    try {
      CallState call{session_.client(), given, launch_, static_cast<size_t>(device_), waits_, holding_};
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

}  // namespace tpjrt::engine
