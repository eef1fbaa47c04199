// Running a graph call by call, and when that is done (Note [Tiers]).
#include <ATen/Context.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/record_function.h>

#include <mutex>
#include <utility>

#include "device/call/meta.h"
#include "device/services/modes.h"
#include "device/start/eager.h"
#include "engine/memory/device_data.h"
#include "engine/memory/host_memory.h"
#include "engine/run/interpret.h"
#include "engine/run/lazy_engine.h"
#include "engine/tier/identity.h"

namespace tpjrt::engine {

using graph::Node;

bool LazyEngine::may_run_by_calls() {
  return compile_policy() != CompilePolicy::kFirst && !device::strict() && !device::eager() &&
         !at::globalContext().deterministicAlgorithms() && session_.client().is_host_memory();
}

std::shared_ptr<Program> LazyEngine::by_calls_or_compiled(const graph::Walk& walk) {
  const std::shared_ptr<MetGraph> met = met_.meet(walk);
  MetGraph& graph = *met;
  if (graph.met == 1) {
    graph.number = session_.programs.new_serial();
    graph.paid = session_.is_paid(identity(walk));
  }
  const bool ready = compile_policy() == CompilePolicy::kReady && graph.coming && graph.coming->background->is_done();
  if (!graph.has_paid() && !ready) {
    if (graph.met == 2 && cuts_.find_needed(walk).empty()) {
      graph.coming = session_.programs.prepare(walk);
      graph.coming->program->serial = graph.number;
      session_.programs.start(*graph.coming);
    }
    std::shared_ptr<Program> program = Program::on_host(walk);
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

int64_t LazyEngine::interpret(const graph::Walk& walk, std::vector<std::shared_ptr<pjrt::Buffer>>& results) {
  RECORD_FUNCTION("pjrt::interpret", {});
  const device::BelowEverything below;  // a mode of the user's has seen these calls when they were recorded
  const int64_t start = now_ns();
  const auto device = walk.nodes.back()->signature->device;
  const Interpreting with{
      [&](const Node& leaf) {
        session_.await(*data_of(leaf).buffer);
        return host_tensor(leaf);
      },
      [&](const Node& node, c10::ArrayRef<at::Tensor> operands) { return run_alone(node, operands); }};
  for (const at::Tensor& value : engine::interpret(walk, with)) {
    results.push_back(to_device(value, device, /*owned=*/true));
  }
  session_.metrics.executions++;
  session_.metrics.nodes_executed += walk.nodes.size();
  const int64_t spent = now_ns() - start;
  session_.metrics.execute_ns += spent;
  return spent;
}

// As the graph of this one call.
std::vector<at::Tensor> LazyEngine::run_alone(const Node& node, c10::ArrayRef<at::Tensor> operands) {
  const graph::Signature& s = *node.signature;
  pjrt::Client& client = session_.client();
  c10::SmallVector<graph::Value, 8> leaves;
  for (size_t i = 0; i < operands.size(); ++i) {
    const graph::TensorType& type = *s.operands[i];
    at::Tensor memory = operands[i];
    if (!is_aligned(memory.const_data_ptr())) {
      memory = at::empty_strided(type.sizes, type.strides, memory.options()).copy_(memory);
    }
    const auto semantics =
        memory.nbytes() == 0 ? pjrt::HostBufferSemantics::kCopy : pjrt::HostBufferSemantics::kZeroCopyImmutable;
    auto buffer = client.buffer_from_host(memory.const_data_ptr(), buffer_type(type), semantics,
                                          static_cast<size_t>(s.device), [memory] {});
    leaves.push_back({graph::make_leaf(&type, std::make_shared<DeviceData>(std::move(buffer), /*borrowed=*/true)), 0});
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
  bind(walk, *program, sync);
  launch(session_, *program, sync.launch, Until::kReady, "Nothing was changed: tensors keep their pending values.");
  std::vector<at::Tensor> tensors(s.results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const graph::NodePtr leaf =
        graph::make_leaf(program->result_types[i], std::make_shared<DeviceData>(std::move(sync.launch.results[i])));
    tensors[results[i].index] = host_tensor(*leaf);
  }
  return tensors;
}

}  // namespace tpjrt::engine
