// Runs single calls while they are recorded (Note [Eager fast path], device/start/eager_fast_path.h).
#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <utility>

#include "device/aten_call/meta.h"
#include "device/services/modes.h"
#include "device/services/python_hooks.h"
#include "engine/kernel/kernel_call.h"
#include "engine/memory/device_data.h"
#include "engine/memory/host_memory.h"
#include "engine/run/interpret.h"
#include "engine/run/lazy_engine.h"
#include "graph/signature.h"

namespace tpjrt::engine {

using device::Shown;
using graph::Value;

// Listeners that get each run, or each call in its place, expect graphs.
bool LazyEngine::runs_kernels() {
  return started() && !in_forked_child() && !session_.run_log.is_on() && !session_.programs.reports_runs() &&
         !at::hasCallbacks() && session_.client().shares_memory() &&
         (compile_policy() != CompilePolicy::kFirst || session_.calls_libraries());
}

bool LazyEngine::may_run_eagerly() {
  return compile_policy() != CompilePolicy::kFirst && !device::strict() && runs_kernels();
}

namespace {

// Returns whether the host can see the leaf's values, and write them if `writes`.
bool is_at_hand(const Value& leaf, bool writes) {
  const auto& data = static_cast<const DeviceData&>(*leaf.node->data);
  if (!data.buffer || !data.buffer->is_seen() || (writes && data.is_shared())) return false;
  return !data.checks || data.checks->have_passed();
}

}  // namespace

// The memory of a leaf, as its tensor sees it.
at::Tensor LazyEngine::shown_memory(const Shown& shown) {
  at::Tensor memory = kept_tensor(*shown.leaf.node);
  if (!shown.is_part) return memory;
  const at::Tensor& t = *shown.tensor;
  return tensor_over(memory.storage(), t.scalar_type(), graph::Sizes(t.sizes()), graph::Sizes(t.strides()),
                     t.storage_offset());
}

bool LazyEngine::run_eagerly(const graph::Signature& signature, c10::ArrayRef<Shown> operands,
                             c10::ArrayRef<graph::ScalarValue> scalars, c10::SmallVectorImpl<Value>& results) {
  if (!may_run_eagerly()) return false;
  const OneCall call{signature, operands, scalars, results};
  bool ran = false;
  session_.exclusively([this, &call, &ran] { ran = run_eagerly(call); });
  return ran;
}

bool LazyEngine::copy_eagerly(const Shown& to, const Shown& from) {
  if (to.tensor->numel() > kFewElements || !may_run_eagerly()) return false;
  bool ran = false;
  session_.exclusively([&] {
    if (!is_at_hand(to.leaf, /*writes=*/true) || (from.leaf && !is_at_hand(from.leaf, /*writes=*/false))) return;
    if (static_cast<const DeviceData&>(*to.leaf.node->data).buffer->is_handed_over()) session_.await_all();
    const Plain plain;
    const device::BelowEverything below;
    shown_memory(to).copy_(from.leaf ? shown_memory(from) : *from.tensor);
    ran = true;
  });
  return ran;
}

bool LazyEngine::run_eagerly(const OneCall& one) {
  const graph::Signature& signature = one.signature;
  KernelCall& call = kernel_call(signature, c10::kCPU, one.scalars);
  if (!call.is_small() || signature.composites) return false;
  for (size_t i = 0; i < one.operands.size(); ++i) {
    const Shown& operand = one.operands[i];
    if (operand.leaf && !is_at_hand(operand.leaf, call.writes(i))) return false;
  }
  FastPath& work = fast_path_;
  if (work.busy) return false;  // a Python kernel records calls of its own
  work.busy = true;
  const auto clear = c10::make_scope_exit([&] {
    work.busy = false;
    work.operands.clear();
    work.results.clear();
    work.stack.clear();
  });
  struct Written {
    const void* place;
    const Shown* operand;
  };
  c10::SmallVector<Written, 2> written;
  for (size_t i = 0; i < one.operands.size(); ++i) {
    const Shown& operand = one.operands[i];
    if (!operand.leaf) {
      at::Tensor memory = empty_of(*graph::dense(signature.operands[i]), c10::kCPU);
      work.operands.push_back(call.fills() ? std::move(memory) : memory.zero_());
      continue;
    }
    at::Tensor host = shown_memory(operand);
    if (call.writes(i)) {
      auto& data = static_cast<DeviceData&>(*operand.leaf.node->data);
      if (data.buffer->is_handed_over()) session_.await_all();  // a reader may still be running
      data.host.reset();                                        // only the call holds it now
      written.push_back({host.const_data_ptr(), &operand});
    } else if (operand.is_part && host.strides() != c10::IntArrayRef(signature.operands[i]->strides)) {
      host = host.contiguous();  // some kernels trust the strides of the signature
    }
    work.operands.push_back(std::move(host));
  }
  const Plain plain;
  const device::BelowEverything below;
  try {
    call.run(one.scalars, work.operands, work.stack, work.results);
  } catch (const std::exception&) {
    device::let_interrupts_pass();
    return false;  // it is recorded instead, and fails when it runs
  }
  work.operands.clear();
  for (size_t i = 0; i < work.results.size(); ++i) {
    at::Tensor& result = work.results[i];
    const auto in_place = std::find_if(written.begin(), written.end(),
                                       [&](const Written& w) { return w.place == result.const_data_ptr(); });
    if (in_place != written.end()) {
      const Value& leaf = in_place->operand->leaf;
      // A part's memory is seen anew by whoever reads it next.
      if (!in_place->operand->is_part) static_cast<DeviceData&>(*leaf.node->data).host = std::move(result);
      one.results.emplace_back();
      continue;
    }
    const size_t fresh = signature.results.size() - signature.mutated.size();
    if (i >= fresh && one.operands[signature.mutated[i - fresh]].is_part) {  // by a kernel that may fail half-way
      shown_memory(one.operands[signature.mutated[i - fresh]]).copy_(result);
      one.results.emplace_back();
      continue;
    }
    const graph::TypePtr form = graph::dense(signature.results[i]);
    std::shared_ptr<const pjrt::BufferType>& type = work.types[form];
    if (!type) type = buffer_type(*form);
    result = in_own_memory(std::move(result), *form);
    if (C10_UNLIKELY(checks_memory())) assert_has_layout(*form, result);
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
    return {graph::make_leaf(form, keep(in_own_memory(std::move(result), *form), buffer_type(*form), device)), 0};
  };
  session_.exclusively([&] {
    c10::SmallVector<at::Tensor, 4> memory;
    for (const Value& leaf : leaves) {
      memory.push_back(kept_tensor(*leaf.node));
      raise_failed(leaf);
    }
    const Plain plain;
    const device::BelowEverything below;
    std::vector<at::Tensor> given = kernel(memory);
    for (at::Tensor& result : given) results.push_back(keep_result(std::move(result)));
    ++session_.metrics.nodes_executed;
  });
}

void LazyEngine::count_eager_calls(uint32_t calls, const char* cause, bool is_all) {
  session_.metrics.nodes_executed += calls;
  if (!is_all) return;
  session_.metrics.count_sync(cause);
  ++session_.metrics.executions;
  ++session_.metrics.graphs_interpreted;
}

}  // namespace tpjrt::engine
