// Running a graph call by call, and when that is done (Note [Tiers]).
#include <ATen/Context.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>

#include "device/call/meta.h"
#include "device/services/modes.h"
#include "device/start/eager.h"
#include "engine/memory/device_data.h"
#include "engine/memory/host_memory.h"
#include "engine/run/interpret.h"
#include "engine/run/lazy_engine.h"
#include "engine/tier/identity.h"
#include "graph/tape/parts.h"

namespace tpjrt::engine {

using graph::Node;

bool LazyEngine::may_run_by_calls() {
  return compile_policy() != CompilePolicy::kFirst && !device::strict() && !device::eager() &&
         !at::globalContext().deterministicAlgorithms();
}

std::shared_ptr<Program> LazyEngine::by_calls_or_compiled(const graph::Walk& walk) {
  const CallsBy by = session_.client().is_host_memory() ? CallsBy::kKernels : CallsBy::kPrograms;
  const std::shared_ptr<MetGraph> met = met_.meet(walk, by);
  MetGraph& graph = *met;
  if (graph.met == 1) {
    graph.number = session_.programs.new_serial();
    graph.paid = session_.is_paid(identity(walk));
  }
  graph.paid |= compile_policy() == CompilePolicy::kReady && graph.coming && graph.coming->background->is_done();
  if (met_.takes_calls(walk, graph, by)) {
    if (graph.met == 1) session_.programs.remember(walk);
    if (graph.met == 2) {
      graph.coming = session_.programs.prepare(walk);
      graph.coming->program->serial = graph.number;
      session_.programs.start(*graph.coming);
    }
    std::shared_ptr<Program> program = Program::of_calls(walk);
    program->serial = graph.number;
    program->by_calls = graph.told();
    return program;
  }
  std::shared_ptr<Program> program;
  if (const auto coming = std::exchange(graph.coming, nullptr); coming && coming->program->accepts(walk.numbers)) {
    program = session_.programs.finish(walk, *coming);
  }
  if (!graph.paid) session_.set_paid(identity(walk));
  graph.paid = true;
  return program;
}

void LazyEngine::run_calls(const graph::Walk& walk, const Program& program, Sync& sync) {
  ++session_.metrics.graphs_run_by_calls;
  std::vector<std::shared_ptr<pjrt::Buffer>>& results = sync.launch.results;
  if (session_.client().is_host_memory()) {
    interpret(walk, sync.launch);
    settle(walk, program, results);
    return;
  }
  graph::PartOfNode each(walk.nodes.size());
  std::iota(each.begin(), each.end(), 0);
  graph::Parts parts(walk, each);
  for (uint32_t i = 0; i < parts.count(); ++i) {
    graph::Walk call;
    {
      const std::lock_guard guard(graph::graph_lock());
      parts.walk(i, call);
    }
    if (call.empty()) continue;
    if (is_of_few_integers(*call.nodes[0])) {
      interpret(call, sync.launch);
      settle(call, *Program::of_calls(call), results);
    } else {
      const std::shared_ptr<Program> alone = session_.programs.find_or_compile(call);
      launch_bound(call, *alone, sync);
      settle(call, *alone, results);
    }
  }
}

void LazyEngine::interpret(const graph::Walk& walk, Launch& launch) {
  RECORD_FUNCTION("pjrt::interpret", {});
  const device::BelowEverything below;  // a mode of the user's has seen these calls when they were recorded
  const int64_t start = now_ns();
  const auto device = walk.nodes.back()->signature->device;
  std::vector<char> is_free;
  for (const graph::NodePtr& leaf : walk.leaves) is_free.push_back(session_.client().is_host_memory() && is_last(leaf));
  std::vector<std::pair<graph::NodePtr, std::shared_ptr<pjrt::Buffer>>> taken;  // leaves, and the buffers that they had
  const Interpreting with{
      [&](const graph::NodePtr& leaf) {
        session_.await(*data_of(*leaf).buffer);
        return host_tensor(*leaf);
      },
      [&](const graph::NodePtr& leaf) {
        if (!is_free[leaf->local]) return false;
        if (taken.empty()) session_.await_all();  // who reads it may not be done
        taken.emplace_back(leaf, std::move(static_cast<DeviceData&>(*leaf->data).buffer));
        return true;
      },
      [&](const Node& node, c10::ArrayRef<at::Tensor> operands) { return run_alone(node, operands, launch.run); }};
  const std::vector<at::Tensor> values = engine::interpret(walk, with);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto it = std::ranges::find_if(
        taken, [&](const auto& one) { return one.second && one.second->host_pointer() == values[i].const_data_ptr(); });
    const bool is_new = it == taken.end();
    const bool fits = !is_new && it->first->leaf_type == walk.results[i].type();
    launch.results.push_back(fits ? std::move(it->second) : to_device(values[i], device, /*owned=*/is_new));
  }
  session_.metrics.executions++;
  session_.metrics.nodes_executed += walk.nodes.size();
  session_.metrics.execute_ns += now_ns() - start;
}

// As the graph of this one call.
std::vector<at::Tensor> LazyEngine::run_alone(const Node& node, c10::ArrayRef<at::Tensor> operands, uint64_t run) {
  const graph::Signature& s = *node.signature;
  c10::SmallVector<graph::Value, 8> leaves;
  for (at::Tensor memory : operands) {
    // An operand lies as its producer left it, which needn't be as the call's signature has it: a view's strides are in there.
    if (!memory.is_non_overlapping_and_dense() || !is_aligned(memory.const_data_ptr())) {
      memory = memory.clone(at::MemoryFormat::Contiguous);
    }
    leaves.push_back(lend(memory, s.device));
  }
  c10::SmallVector<graph::Number, 8> numbers(node.numbers.begin(), node.numbers.end());
  std::vector<graph::Value> results;
  graph::Walk walk;
  {
    const std::lock_guard guard(graph::graph_lock());
    const graph::NodePtr call = graph::make_node(&s, leaves, numbers);
    for (uint32_t i = 0; i < s.results.size(); ++i) {
      if (s.results[i]) results.push_back({call, i});
    }
    graph::walk_trace(results, {}, {}, walk);
  }
  const std::shared_ptr<Program> program = session_.programs.find_or_compile(walk);
  Sync sync;
  sync.launch.run = run;
  bind(walk, *program, sync);
  launch(session_, *program, sync.launch, Until::kReady, "Nothing was changed: tensors keep their pending values.");
  std::vector<at::Tensor> tensors(s.results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const graph::NodePtr leaf = leaf_of(program->result_types[i], std::move(sync.launch.results[i]));
    tensors[results[i].index] = host_tensor(*leaf);
  }
  return tensors;
}

}  // namespace tpjrt::engine
