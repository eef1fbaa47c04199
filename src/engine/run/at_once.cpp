// Runs single calls while they are recorded (Note [At once], device/start/at_once.h).
#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <utility>

#include "device/call/meta.h"
#include "device/services/interrupt.h"
#include "device/services/modes.h"
#include "engine/memory/device_data.h"
#include "engine/memory/host_memory.h"
#include "engine/run/kernel/kernel_call.h"
#include "engine/run/lazy_engine.h"
#include "engine/run/plain.h"
#include "graph/world/world.h"

namespace tpjrt::engine {

using graph::Value;

namespace {

// Returns the call's execution on the host, which is found once.
KernelCall& call_of(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers) {
  if (!signature.on_host) signature.on_host = &KernelCall::of(&signature, c10::kCPU, numbers);
  return *static_cast<KernelCall*>(const_cast<void*>(signature.on_host));
}

}  // namespace

// Returns true unless a setting forbids it for all calls. Listeners that get each run, or each call in its place,
// expect graphs.
bool LazyEngine::may_run_at_once() {
  const CompilePolicy policy = compile_policy();
  const bool compiles_first = policy == CompilePolicy::kEvery || policy == CompilePolicy::kFirst || device::strict();
  return started() && !in_forked_child() && !compiles_first && !graph::in_world() && !session_.run_log.is_on() &&
         !session_.programs.tells_of_runs() && !at::hasCallbacks() && session_.client().is_host_memory();
}

bool LazyEngine::run_at_once(const graph::Signature& signature, c10::ArrayRef<Value> leaves,
                             c10::ArrayRef<graph::Number> numbers, c10::SmallVectorImpl<Value>& results) {
  if (!may_run_at_once()) return false;
  const OneCall call{signature, leaves, numbers, results};
  bool ran = false;
  session_.exclusively([this, &call, &ran] { ran = run_at_once(call); });
  return ran;
}

bool LazyEngine::run_at_once(const OneCall& one) {
  const graph::Signature& signature = one.signature;
  KernelCall& call = call_of(signature, one.numbers);
  if (!call.is_small() || signature.composites) return false;
  for (size_t i = 0; i < one.leaves.size(); ++i) {
    const auto& data = static_cast<const DeviceData&>(*one.leaves[i].node->data);
    if (!data.buffer || !data.buffer->is_seen() || (call.writes(i) && data.is_shared())) return false;
    if (data.checks && !data.checks->are_met()) return false;
  }
  AtOnce& work = at_once_;
  if (work.busy) return false;  // a Python kernel records calls of its own
  work.busy = true;
  if (!work.node) work.node = c10::make_intrusive<graph::Node>(&signature, 0);
  work.node->signature = &signature;
  work.node->numbers.assign(one.numbers.begin(), one.numbers.end());
  const auto clear = c10::make_scope_exit([&] {
    work.busy = false;
    work.operands.clear();
    work.results.clear();
    work.stack.clear();
  });
  c10::SmallVector<std::pair<const void*, DeviceData*>, 2> written;
  for (size_t i = 0; i < one.leaves.size(); ++i) {
    const graph::Node& leaf = *one.leaves[i].node;
    at::Tensor host = kept_tensor(leaf);
    if (call.writes(i)) {
      auto& data = static_cast<DeviceData&>(*leaf.data);
      if (data.buffer->is_handed_over()) session_.await_all();  // a reader may still be running
      data.host.reset();                                        // only the call holds it now
      written.emplace_back(host.const_data_ptr(), &data);
    }
    work.operands.push_back(std::move(host));
  }
  const Plain plain;
  const device::BelowEverything below;
  try {
    call.run(*work.node, work.operands, work.stack, work.results);
  } catch (const std::exception&) {
    device::let_interrupts_pass();
    return false;  // it is recorded instead, and fails when it runs
  }
  for (size_t i = 0; i < work.results.size(); ++i) {
    at::Tensor& result = work.results[i];
    const auto in_place = std::find_if(written.begin(), written.end(),
                                       [&](const auto& place) { return place.first == result.const_data_ptr(); });
    if (in_place != written.end()) {
      in_place->second->host = std::move(result);
      one.results.emplace_back();
      continue;
    }
    const graph::TypePtr form = graph::dense(signature.results[i]);
    std::shared_ptr<const pjrt::BufferType>& type = work.types[form];
    if (!type) type = buffer_type(*form);
    if (!is_alone(result) || result.storage().nbytes() != form->nbytes())
      result = empty_of(*form, c10::kCPU).copy_(result);
    if (C10_UNLIKELY(checks_memory())) assert_lies_as(*form, result);
    const auto device = static_cast<c10::DeviceIndex>(signature.device);
    one.results.push_back({graph::make_leaf(form, keep(std::move(result), type, device)), 0});
  }
  return true;
}

void LazyEngine::run_kernel(c10::ArrayRef<Value> leaves, KernelOnMemory kernel, c10::DeviceIndex device,
                            c10::SmallVectorImpl<Value>& results) {
  const auto keep_result = [&](at::Tensor result) -> Value {
    if (!result.defined()) return {};
    if (!result.is_non_overlapping_and_dense()) result = result.contiguous();
    const graph::TypePtr form = form_of(result);
    if (!is_alone(result) || result.storage().nbytes() != form->nbytes()) {
      result = empty_of(*form, c10::kCPU).copy_(result);
    }
    return {graph::make_leaf(form, keep(std::move(result), buffer_type(*form), device)), 0};
  };
  session_.exclusively([&] {
    c10::SmallVector<at::Tensor, 4> memory;
    for (const Value& leaf : leaves) {
      memory.push_back(kept_tensor(*leaf.node));
      raise_unmet(leaf);
    }
    const Plain plain;
    const device::BelowEverything below;
    std::vector<at::Tensor> given = kernel(memory);
    for (at::Tensor& result : given) results.push_back(keep_result(std::move(result)));
    ++session_.metrics.nodes_executed;
  });
}

void LazyEngine::count_at_once(uint32_t calls, const char* cause, bool is_all) {
  session_.metrics.nodes_executed += calls;
  if (!is_all) return;
  session_.metrics.count_sync(cause);
  ++session_.metrics.executions;
  ++session_.metrics.graphs_run_by_calls;
}

}  // namespace tpjrt::engine
