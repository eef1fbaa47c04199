// Runs nodes by dispatching their calls on tensors of PyTorch's own devices.
#include "engine/run/interpret.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <unordered_map>
#include <utility>

#include "device/services/python_hooks.h"
#include "engine/kernel/kernel_call.h"
#include "engine/lower/call_lowering.h"
#include "engine/memory/device_data.h"
#include "graph/node.h"
#include "pjrt/api/event.h"

namespace tpjrt::engine {

using graph::Node;
using graph::Value;

namespace {

using Tensors = std::vector<at::Tensor>;

class Interpreter {
 public:
  Interpreter(const graph::Walk& walk, const CallsPlan& plan, const Interpreting& with)
      : walk_(walk), plan_(plan), with_(with), values_(plan.read.size()) {
    for (size_t i = 0; i < walk.leaves.size(); ++i) values_[i] = with.leaf(walk.leaves[i]);
  }

  Tensors run() {
    size_t next = walk_.leaves.size();
    const CallsPlan::Operand* operand = plan_.operands.data();
    Tensors operands, results;
    for (at_ = 0; at_ < plan_.calls.size(); ++at_) {
      const CallsPlan::Call& call = plan_.calls[at_];
      if (call.looks && !wrote_) let_interrupt();
      operands.clear();
      results.clear();
      for (uint32_t i = 0; i < call.operands; ++i) operands.push_back(take(*operand++));
      if (call.overwritten) {
        results.push_back(empty_of(*call.call->signature().results[0], plan_.device));
      } else if (call.aliases) {
        results.push_back(call.call->alias(walk_.nodes[at_]->scalars, operands[0]));
      } else {
        run(*walk_.nodes[at_], *call.call, operands, results);
      }
      for (size_t i = 0; i < call.results; ++i, ++next) {
        if (plan_.read[next]) values_[next] = std::move(results[i]);
      }
    }
    operands.clear();
    results.clear();
    for (size_t i = 0; i < plan_.results.size(); ++i) results.push_back(own(plan_.results[i], walk_.results[i]));
    return results;
  }

 private:
  // Releases values at their last read; leaves only if they are written.
  at::Tensor take(const CallsPlan::Operand& operand) {
    at::Tensor& held = values_[operand.value];
    if (!operand.last) return held;
    if (operand.value < walk_.leaves.size()) {
      if (!operand.written || at_ < plan_.safe || !with_.take(walk_.leaves[operand.value])) return held;
      wrote_ = true;
    }
    return std::move(held);
  }

  // Returns a result in memory of its own: a view node may share its base's, and a leaf's memory belongs to the leaf.
  at::Tensor own(uint32_t number, const Value& value) {
    at::Tensor& held = values_[number];
    const graph::TensorType& type = *graph::dense(value.type());
    return in_own_memory(number >= walk_.leaves.size() ? std::move(held) : held, type);
  }

  void let_interrupt() {
    const auto now = std::chrono::steady_clock::now();
    if (now - looked_ < std::chrono::milliseconds(50)) return;
    looked_ = now;
    if (const pjrt::WaitHook hook = pjrt::wait_hook()) hook();
  }

  void run(const Node& node, KernelCall& call, Tensors& operands, Tensors& results) {
    bool threw = false;
    if (call.way() != KernelCall::Way::kNone) {
      try {
        return call.run(node.scalars, operands, stack_, results);
      } catch (
          const c10::OutOfMemoryError&) {  // a GPU's plugin may have memory left, and PyTorch may have some again later
        stack_.clear();
        results.clear();
        results = with_.alone(node, static_cast<uint32_t>(at_), operands);
        return;
      } catch (const std::exception&) {
        if (!call.may_be_refused()) throw;
        device::let_interrupts_pass();
        stack_.clear();
        results.clear();
        threw = true;
      }
    }
    run_otherwise(node, call, operands, results);
    // A kernel that threw because of its operands' data works for others.
    if (threw && !with_.found_mistake()) call.refuse();
  }

  void run_otherwise(const Node& node, const KernelCall& call, Tensors& operands, Tensors& results) {
    const graph::Signature& s = *node.signature;
    if (s.op && !s.random) {
      const Subgraph& decomposition = lowering_of(s).decomposition;
      if (!decomposition.results.empty()) {
        results = run(decomposition, operands);
        return call.lay_out(results, 0);
      }
    }
    results = with_.alone(node, static_cast<uint32_t>(at_), operands);
  }

  Tensors run(const Subgraph& graph, const Tensors& operands) {
    std::unordered_map<const Node*, Tensors> done;
    for (size_t i = 0; i < operands.size(); ++i) {  // placeholders' layout, because views of them are taken
      done[graph.placeholders[i].get()] = {laid_out(operands[i], *graph.placeholders[i]->leaf_type)};
    }
    const auto value_of = [&](const Value& value) { return done.at(value.node.get())[value.index]; };
    for (const Node* node : graph::topological_order(graph.results)) {
      if (node->is_leaf()) continue;
      Tensors inputs;
      for (const Value& operand : node->operands) inputs.push_back(value_of(operand));
      run(*node, kernel_call(*node->signature, plan_.device, node->scalars), inputs, done[node]);
    }
    Tensors results;
    for (const Value& result : graph.results) results.push_back(result ? value_of(result) : at::Tensor());
    return results;
  }

  const graph::Walk& walk_;
  const CallsPlan& plan_;
  const Interpreting& with_;
  size_t at_ = 0;       // index of the call
  bool wrote_ = false;  // to a leaf
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  Tensors values_;           // by number; released after the last read
  torch::jit::Stack stack_;  // empty between calls
};

}  // namespace

std::vector<at::Tensor> interpret(const graph::Walk& walk, const CallsPlan& plan, const Interpreting& with) {
  return Interpreter(walk, plan, with).run();
}

}  // namespace tpjrt::engine
