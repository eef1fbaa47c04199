// Interprets graphs with PyTorch's CPU or CUDA kernels, and decides when (Note [Tiers]).
#include <ATen/Context.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "device/aten_call/arguments.h"
#include "device/aten_call/meta.h"
#include "device/services/counters.h"
#include "device/services/modes.h"
#include "device/start/eager.h"
#include "engine/memory/device_data.h"
#include "engine/run/cuda_run.h"
#include "engine/run/interpret.h"
#include "engine/run/lazy_engine.h"
#include "engine/session/out_of_memory.h"
#include "engine/tier/graph_keys.h"
#include "engine/tier/identity.h"
#include "graph/signature.h"

namespace tpjrt::engine {

using graph::Node;

bool LazyEngine::runs_on_all_ranks(const graph::Walk& walk) {
  const pjrt::Client& client = session_.client();
  const auto communicates = [](const Node* node) { return graph::collective(*node->signature).has_value(); };
  return client.replicas() > 1 || (client.spans_processes() && std::ranges::any_of(walk.nodes, communicates));
}

namespace {

// Kernels use the current precision settings of PyTorch, programs the settings when a call was recorded.
bool asked_for_another_precision(const graph::Walk& walk) {
  const graph::Precisions now = device::asked_precisions(graph::PrecisionSettings::kCuda);
  return std::ranges::any_of(walk.nodes, [&](const Node* node) {
    const graph::Signature& s = *node->signature;
    const bool is_other = s.precisions.products != now.products || s.precisions.convolutions != now.convolutions;
    return is_other && s.op && !s.operands.empty() && !s.op->hasTag(at::Tag::pointwise);
  });
}

}  // namespace

bool LazyEngine::may_interpret(const graph::Walk& walk, bool is_part) {
  const CompilePolicy policy = compile_policy();
  if (policy == CompilePolicy::kFirst && !interprets_growing()) return false;
  if (device::eager() || runs_on_all_ranks(walk)) return false;
  if (has_integer_ops_only(walk)) return true;
  const InterpretBy by = interpret_by();
  if (by == InterpretBy::kCudaKernels && asked_for_another_precision(walk)) return false;
  const bool copies = by == InterpretBy::kCopies;
  if (device::strict() && copies) return false;
  const bool is_compiled_first =
      policy == CompilePolicy::kFirst || device::strict() || (copies && policy != CompilePolicy::kNever);
  return !is_compiled_first || (!stays_in_one_tier() && profiles_.has_dynamic_shape(walk, is_part));
}

InterpretBy LazyEngine::interpret_by() {
  if (session_.client().is_host_memory()) return InterpretBy::kKernels;
  return kernels_of(0).is_cuda() ? InterpretBy::kCudaKernels : InterpretBy::kCopies;
}

c10::Device LazyEngine::kernels_of(c10::DeviceIndex device) {
  return cuda_device(session_.client(), static_cast<size_t>(device)).value_or(c10::Device(c10::kCPU));
}

LazyEngine::Chosen LazyEngine::interpreted_or_compiled(const graph::Walk& walk) {
  const std::shared_ptr<GraphProfile> profile = profiles_.count_execution(walk, interpret_by());
  GraphProfile& graph = *profile;
  if (graph.executions == 1) {
    graph.number = session_.programs.new_serial();
    graph.amortized = session_.is_amortized(identity(walk));
  }
  const GraphProfiles::TierDecision decision = profiles_.decide(graph);
  if (decision != GraphProfiles::TierDecision::kProgram) {
    if (graph.executions == 1) session_.programs.remember(walk);
    if (decision == GraphProfiles::TierDecision::kInterpretAndCompile) {
      graph.pending = session_.programs.prepare(walk);
      graph.pending->program->serial = graph.number;
      session_.programs.start(*graph.pending);
    }
    std::shared_ptr<const CallsPlan> plan = graph.plan;
    if (!plan || !plan->serves(walk)) {
      plan = std::make_shared<const CallsPlan>(walk, kernels_of(walk.nodes.back()->signature->device));
    }
    if (graph.executions > 1) graph.plan = plan;  // most graphs occur once, and keep none
    plan->program->serial = graph.number;
    if (session_.run_log.is_on()) plan->program->interpreted = profiles_.description(graph);
    return {plan->program, plan};
  }
  graph.plan = nullptr;
  std::shared_ptr<Program> program;
  if (const auto pending = std::exchange(graph.pending, nullptr); pending && pending->program->accepts(walk.scalars)) {
    program = session_.programs.finish(walk, *pending);
  }
  if (!program) program = session_.programs.compile(walk);
  if (!graph.amortized) session_.set_amortized(identity(walk));
  graph.amortized = true;
  return {program, nullptr};
}

std::optional<uint64_t> LazyEngine::run_calls(const graph::Walk& walk, const CallsPlan& plan) {
  ++session_.metrics.graphs_interpreted;  // counts interrupted runs, too
  const Interpreted done = interpret(walk, plan);
  if (done.lacks_memory) {
    --session_.metrics.graphs_interpreted;
    return std::nullopt;
  }
  if (interpret_by() == InterpretBy::kCopies) session_.metrics.calls_on_host += walk.nodes.size() - done.alone;
  device::counters().host_transfer_bytes += done.copied;
  return done.copied;
}

namespace {

// The leaves that a run overwrites, with their former memory.
class Taken {
 public:
  // Takes the leaf's memory. The leaf has no value from now on.
  void add(const graph::NodePtr& leaf) {
    auto& data = static_cast<DeviceData&>(*leaf->data);
    data.host.reset();  // only the run holds it now
    const void* address = data.buffer->host_pointer();
    all_.push_back({leaf, std::move(data.buffer), address});
  }
  bool empty() const { return all_.empty(); }
  // Returns the buffer of this memory if it was taken, otherwise null. Lookups mostly come in the order of the writes.
  struct One {
    graph::NodePtr leaf;
    std::shared_ptr<pjrt::Buffer> buffer;
    const void* address;
  };
  One* find(const void* address) {
    for (size_t i = 0; i < all_.size(); ++i) {
      One& one = all_[next_];
      next_ = next_ + 1 == all_.size() ? 0 : next_ + 1;
      if (one.address == address && one.buffer) return &one;
    }
    return nullptr;
  }

 private:
  std::vector<One> all_;
  size_t next_ = 0;
};

}  // namespace

LazyEngine::Interpreted LazyEngine::interpret(const graph::Walk& walk, const CallsPlan& plan) {
  RECORD_FUNCTION("pjrt::interpret", {});
  const Plain plain;
  const device::BelowEverything below;  // the user's modes saw these calls at recording
  const int64_t start = now_ns();
  const Interpreted done = plan.device.is_cuda() ? interpret_on_cuda(walk, plan) : interpret_on_host(walk, plan);
  if (done.lacks_memory) return done;
  session_.metrics.executions++;
  session_.metrics.nodes_executed += walk.nodes.size();
  session_.metrics.execute_ns += now_ns() - start;
  return done;
}

LazyEngine::Interpreted LazyEngine::interpret_on_host(const graph::Walk& walk, const CallsPlan& plan) {
  const auto device = walk.nodes.back()->signature->device;
  const bool copies = interpret_by() == InterpretBy::kCopies;
  Taken taken;
  Interpreted done;
  CallChecks checks;
  const Interpreting with{[&](const graph::NodePtr& leaf) {
                            if (copies) done.copied += leaf->leaf_type->nbytes();
                            return kept_tensor(*leaf);
                          },
                          [&](const graph::NodePtr& leaf) {
                            if (copies || !is_last(leaf)) return false;
                            if (taken.empty()) session_.await_all();  // a reader may still be running
                            taken.add(leaf);
                            return true;
                          },
                          [&](const Node& node, uint32_t call, c10::ArrayRef<at::Tensor> operands) {
                            ++done.alone;
                            c10::SmallVector<graph::Value, 8> leaves;
                            for (const at::Tensor& memory : operands) {
                              leaves.push_back(lend(of_memory(memory), node.signature->device));
                            }
                            return at_results(node, run_alone(node, call, leaves, checks, Until::kReady),
                                              [&](const graph::NodePtr& leaf) { return host_tensor(*leaf); });
                          },
                          [&] { return checks.run && checks.run->any_failed(); }};
  std::vector<at::Tensor> values = engine::interpret(walk, plan, with);
  std::vector<std::shared_ptr<DeviceData>> results;
  for (size_t i = 0; i < values.size(); ++i) {
    if (C10_UNLIKELY(checks_memory())) assert_has_layout(*graph::dense(plan.program->result_types[i]), values[i]);
    if (copies) done.copied += values[i].nbytes();
    Taken::One* const one = taken.find(values[i].const_data_ptr());
    if (!one) {
      results.push_back(keep(std::move(values[i]), plan.result_types[i], device));
    } else if (one->leaf->leaf_type == plan.program->result_types[i]) {
      results.push_back(std::make_shared<DeviceData>(std::move(one->buffer)));
      results.back()->host = std::move(values[i]);
    } else {
      results.push_back(std::make_shared<DeviceData>(to_device(values[i], device, /*owned=*/false)));
    }
  }
  settle(walk, *plan.program, checks, results);
  return done;
}

std::vector<graph::NodePtr> LazyEngine::run_alone(const Node& node, uint32_t call,
                                                  c10::SmallVectorImpl<graph::Value>& leaves, CallChecks& checks,
                                                  Until until) {
  const graph::Signature& s = *node.signature;
  c10::SmallVector<graph::ScalarValue, 8> scalars(node.scalars.begin(), node.scalars.end());
  std::vector<graph::Value> results;
  graph::Walk walk;
  {
    const std::lock_guard guard(graph::graph_lock());
    const graph::NodePtr call = graph::make_node(&s, leaves, scalars);
    for (uint32_t i = 0; i < s.results.size(); ++i) {
      if (s.results[i]) results.push_back({call, i});
    }
    graph::walk_trace(results, {}, {}, walk);
  }
  const std::shared_ptr<Program> program = session_.programs.find_or_compile(walk);
  Sync sync;
  bind(walk, *program, sync);
  sync.launch.run = checks.run;
  launch(session_, *program, sync.launch, until, "Nothing was changed: tensors keep their pending values.");
  checks.run = std::move(sync.launch.run);
  if (checks.run) checks.calls.resize(checks.run->size(), call);
  std::vector<graph::NodePtr> made;
  for (size_t i = 0; i < results.size(); ++i) {
    made.push_back(leaf_of(program->result_types[i], std::move(sync.launch.results[i])));
  }
  return made;
}

// See Note [Interpreter tier on CUDA].
LazyEngine::Interpreted LazyEngine::interpret_on_cuda(const graph::Walk& walk, const CallsPlan& plan) {
  const auto device = walk.nodes.back()->signature->device;
  at::globalContext().lazyInitDevice(c10::kCUDA);
  CudaRun cuda(session_.client(), static_cast<size_t>(device), plan.device);
  CallChecks checks;
  const auto computed = [&](const pjrt::Buffer& buffer, const auto& tensor) {
    try {
      return tensor();
    } catch (const pjrt::Error&) {
      session_.await(buffer);  // throws the error of its program
      throw;
    }
  };
  const Interpreting with{
      [&](const graph::NodePtr& leaf) { return computed(*data_of(*leaf).buffer, [&] { return cuda.tensor(leaf); }); },
      [&](const graph::NodePtr& leaf) { return cuda.take(leaf); },
      [&](const graph::Node& node, uint32_t call, c10::ArrayRef<at::Tensor> operands) {
        c10::SmallVector<graph::Value, 8> leaves;
        for (const at::Tensor& memory : operands) leaves.emplace_back(cuda.lend(of_memory(memory)), 0);
        const auto tensor = [&](const graph::NodePtr& leaf) {
          const std::shared_ptr<pjrt::Buffer>& buffer = data_of(*leaf).buffer;
          return computed(*buffer, [&] { return cuda.result(leaf->leaf_type, buffer); });
        };
        return at_results(node, run_alone(node, call, leaves, checks, Until::kStarted), tensor);
      },
      [&] { return checks.run && checks.run->any_failed(); }};
  std::vector<std::shared_ptr<DeviceData>> results;
  try {
    std::vector<at::Tensor> values = engine::interpret(walk, plan, with);
    for (size_t i = 0; i < values.size(); ++i) {
      if (C10_UNLIKELY(checks_memory())) assert_has_layout(*graph::dense(plan.program->result_types[i]), values[i]);
      results.push_back(cuda.keep(std::move(values[i]), plan.result_types[i]));
    }
  } catch (const c10::OutOfMemoryError& error) {
    if (!cuda.took()) return {.lacks_memory = true};
    TORCH_CHECK_WITH(OutOfMemoryError, false, error.what_without_backtrace(), "\nIn ", walk.nodes.size(),
                     " calls by PyTorch's kernels. ", LargestResult::of(walk)->description(),
                     " What they write in place has no value any more.");
  }
  settle(walk, *plan.program, checks, results);
  return {};
}

}  // namespace tpjrt::engine
