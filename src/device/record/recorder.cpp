// The hot path of recording: from a call on the stack to a node and its tensors.
#include "device/record/recorder.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/record_function.h>
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <unordered_set>

#include "device/aten_call/arguments.h"
#include "device/aten_call/meta.h"
#include "device/aten_call/plan.h"
#include "device/host/host.h"
#include "device/services/counters.h"
#include "device/services/engine.h"
#include "device/services/modes.h"
#include "device/services/python_hooks.h"
#include "device/sized/sized.h"
#include "device/start/eager.h"
#include "device/start/eager_fast_path.h"
#include "device/tensor/access.h"
#include "device/tensor/generator.h"
#include "device/tensor/seal.h"
#include "device/tensor/storage.h"
#include "graph/errors.h"
#include "graph/fingerprint/walk.h"

namespace tpjrt::device {
namespace {

using graph::Value;

// Checks what TensorIterator checks on the CPU and Meta can't see: memory that is written twice, or read while it is
// written.
void check_overlap(const Operator& op, const Arguments& arguments) {
  if (!op.writes_one_value) {
    for (const uint32_t index : arguments.written_in_lists) at::assert_no_internal_overlap(*arguments.operands[index]);
  }
  for (const uint32_t index : arguments.written) {
    const at::Tensor& written = *arguments.operands[index];
    if (!op.writes_one_value) at::assert_no_internal_overlap(written);
    for (const at::Tensor* operand : arguments.operands) {
      if (operand == &written || !operand->is_alias_of(written)) continue;
      if (op.indexes) {
        at::assert_no_overlap(written, *operand);
      } else if (!operand->is_same(written)) {
        at::assert_no_partial_overlap(written, *operand);
      }
    }
  }
}

const c10::StorageImpl* storage_below(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// Returns whether any two tensors share a storage. Called for every list that is written, so it doesn't sort.
bool any_share(c10::ArrayRef<const at::Tensor*> tensors) {
  c10::SmallVector<const c10::StorageImpl*, 512> seen(std::bit_ceil(2 * tensors.size()), nullptr);
  const size_t last = seen.size() - 1;
  for (const at::Tensor* tensor : tensors) {
    const c10::StorageImpl* storage = storage_below(*tensor);
    size_t at = graph::mixed(0, reinterpret_cast<uint64_t>(storage)) & last;
    for (; seen[at] != nullptr; at = (at + 1) & last) {
      if (seen[at] == storage) return true;
    }
    seen[at] = storage;
  }
  return false;
}

// Returns whether the call writes, in a list, to memory that another of its tensors shares. Such a call is run as one
// call for each element in order, each of which sees earlier writes.
bool lists_overlap(const Arguments& arguments) {
  if (C10_LIKELY(arguments.written_in_lists.empty() || !any_share(arguments.operands))) return false;
  for (const uint32_t index : arguments.written_in_lists) {
    const at::Tensor& written = *arguments.operands[index];
    for (const at::Tensor* other : arguments.operands) {
      if (other == &written || storage_below(*other) != storage_below(written)) continue;
      if (at::get_overlap_status(written, *other) != at::MemOverlapStatus::No) return true;
    }
  }
  return false;
}

void check_seal(const Operator& op, const Arguments& arguments) {
  for (const uint32_t index : arguments.written) before_write(*arguments.operands[index], op.name.c_str());
  for (const uint32_t index : arguments.written_in_lists) before_write(*arguments.operands[index], op.name.c_str());
}

// Gives the warning of the CPU's kernels. `values`: a tensor, dimensions, a correction.
void warn_of_degrees_of_freedom(const Operator& op, const c10::IValue* values) {
  const at::Tensor& self = values[0].toTensor();
  const c10::IValue& correction = values[*op.correction];
  const std::vector<int64_t> dims = values[1].isIntList() ? values[1].toIntVector() : std::vector<int64_t>();
  int64_t elements = dims.empty() ? self.numel() : 1;
  for (const int64_t dim : dims) elements *= self.dim() == 0 ? 1 : self.size(dim);
  if (self.numel() == 0) elements = 0;
  if (static_cast<double>(elements) > (correction.isNone() ? 1.0 : correction.toScalar().toDouble())) return;
  TORCH_WARN(
      op.op.schema().name().substr(sizeof("aten::") - 1),
      "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel "
      "divided by output numel).");
}

std::unique_ptr<Plan> make_timed_plan(const Operator& op, const c10::IValue* values, const Arguments& arguments) {
  const RecordTimer timer(counters().plan_ns);
  struct InPlan {
    bool before = std::exchange(RecordTimer::in_plan, true);
    ~InPlan() { RecordTimer::in_plan = before; }
  } in_plan;
  at::RecordFunctionGuard unseen(/*is_enabled=*/false);  // a profiler shows the user's calls, not these
  return make_plan(op, values, arguments);
}

at::Tensor make_bound(const graph::NodePtr& node, uint32_t index, c10::DeviceIndex device) {
  graph::TypePtr type = node->signature->results[index];
  if (!type) return {};
  at::Tensor tensor = make_tensor(type, device);
  storage_of(tensor)->slot.bind(Value{node, index});
  return tensor;
}

// Gives a mutated argument that Meta resized (an `out=` of the wrong size) a storage value of the new size
// immediately.
void resize_written(const at::Tensor& tensor, graph::TypePtr type) {
  storage_of(tensor)->set_nbytes(std::max(type->nbytes(), storage_of(tensor)->nbytes()));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(type->sizes, type->strides);
}

bool is_read_too(const Plan::Write& write, const Arguments& arguments) {
  const at::Tensor& written = *arguments.operands[write.operand];
  return std::any_of(arguments.operands.begin(), arguments.operands.end(),
                     [&](const at::Tensor* operand) { return operand != &written && operand->is_same(written); });
}

// Returns whether an `out=` of the wrong size must be resized before recording: it deserves a warning, or begins
// within its storage, so that its new end may be beyond it, or is read as well.
bool needs_resizing_first(const Plan& plan, const Arguments& arguments) {
  return plan.resizes && std::any_of(plan.writes.begin(), plan.writes.end(), [&](const Plan::Write& write) {
           const at::Tensor& out = *arguments.operands[write.operand];
           return write.resized && (out.numel() != 0 || out.storage_offset() != 0 || is_read_too(write, arguments));
         });
}

// Returns whether the CPU's kernel resizes its `out=` without a warning.
bool resizes_silently(const Operator& op) {
  static const std::unordered_set<std::string_view> kNames = {
      "aten::addbmm.out",
      "aten::bernoulli.out",
      "aten::eye.out",
      "aten::eye.m_out",
      "aten::multinomial.out",
      "aten::narrow_copy.out",
      "aten::log_sigmoid_forward.output",
  };
  return kNames.contains(op.name);
}

void resize_first(const Operator& op, const Plan& plan, const Arguments& arguments) {
  const auto type = [&](const Plan::Write& write) { return plan.signature.results[write.result]; };
  for (const Plan::Write& write : plan.writes) {  // all of them, before anything is changed
    TORCH_CHECK(!write.resized || !is_read_too(write, arguments), "output with shape ",
                arguments.operands[write.operand]->sizes(), " doesn't match the broadcast shape ",
                c10::IntArrayRef(type(write)->sizes));
  }
  for (const Plan::Write& write : plan.writes) {
    if (!write.resized) continue;
    const at::Tensor& out = *arguments.operands[write.operand];
    if (!resizes_silently(op)) at::native::resize_output_check(out, type(write)->sizes);
    out.resize_(type(write)->sizes);
    out.unsafeGetTensorImpl()->set_sizes_and_strides(type(write)->sizes, type(write)->strides);
  }
}

using Scalars = c10::SmallVector<graph::ScalarValue, 4>;

// Returns the call's numbers, with its random key. Under graph_lock().
Scalars take_scalars(const Plan& plan, const Arguments& arguments) {
  Scalars scalars(arguments.scalars.begin(), arguments.scalars.end());
  if (plan.signature.random) {
    const auto [seed, offset] = next_key(arguments.generator, arguments.device);
    scalars.push_back(graph::ScalarValue::key(seed));
    scalars.push_back(graph::ScalarValue::key(offset));
  }
  return scalars;
}

// Makes the node; `results` get the new tensors. Returns the size of the node's component. Under graph_lock().
uint32_t emit(const Plan& plan, const Arguments& arguments, Scalars& scalars, Results& results) {
  c10::SmallVector<Value, 8> operands;
  for (const at::Tensor* tensor : arguments.operands) operands.push_back(read(*tensor));
  const graph::NodePtr node = graph::make_node(&plan.signature, operands, scalars);
  const auto fresh = static_cast<uint32_t>(plan.signature.results.size() - plan.writes.size());
  for (uint32_t i = 0; i < fresh; ++i) results.push_back(make_bound(node, i, arguments.device));
  for (const Plan::Write& w : plan.writes) {
    const at::Tensor& tensor = *arguments.operands[w.operand];
    if (w.resized) resize_written(tensor, plan.signature.results[w.result]);
    write(tensor, Value{node, w.result});
  }
  return graph::Component::root(node->component.get())->nodes;
}

// Returns one of the tensors that hold a result of the call; undefined if none does.
at::Tensor holder(const Plan& plan, const Arguments& arguments, c10::ArrayRef<at::Tensor> results) {
  for (const at::Tensor& tensor : results) {
    if (tensor.defined()) return tensor;
  }
  return plan.writes.empty() ? at::Tensor() : *arguments.operands[plan.writes[0].operand];
}

void push_returns(const Operator& op, const Plan& plan, Results& results, torch::jit::Stack& stack) {
  const size_t first = stack.size() - op.arguments.size();
  if (plan.returns.size() == 1 && plan.returns[0].kind == Plan::Return::Kind::kFresh) {  // nearly every call
    stack.resize(first);
    stack.emplace_back(std::move(results[0]));
    return;
  }
  torch::jit::Stack returns;
  returns.reserve(plan.returns.size());
  for (const Plan::Return& value : plan.returns) {
    switch (value.kind) {
      case Plan::Return::Kind::kFresh:
      case Plan::Return::Kind::kUndefined: returns.emplace_back(std::move(results[value.first])); break;
      case Plan::Return::Kind::kArgument: returns.push_back(stack[first + value.first]); break;
      case Plan::Return::Kind::kInteger: returns.emplace_back(value.integer); break;
      case Plan::Return::Kind::kFreshList: {
        c10::List<at::Tensor> list;
        list.reserve(value.count);
        for (uint32_t i = 0; i < value.count; ++i) list.push_back(std::move(results[value.first + i]));
        returns.emplace_back(std::move(list));
        break;
      }
    }
  }
  stack.resize(first);
  for (c10::IValue& value : returns) stack.push_back(std::move(value));
}

// Runs the call immediately (Note [Eager fast path]). Returns false, and does nothing, if it must be recorded. Releases
// `lock` meanwhile.
bool run_eagerly(const Plan& plan, const Arguments& arguments, const Scalars& scalars, Results& results,
                 std::unique_lock<std::mutex>& lock) {
  const graph::Signature& s = plan.signature;
  if (plan.resizes || !may_run_eagerly()) return false;
  c10::SmallVector<Shown, 4> operands;
  c10::SmallVector<Value, 4> given;
  for (const at::Tensor* tensor : arguments.operands) {
    const std::optional<Shown> value = shown(*tensor);
    if (!value) return false;
    operands.push_back(*value);
  }
  for (const Plan::Write& write : plan.writes) {
    // Only the storage slot and this function hold the value; no one else depends on the old one.
    const Value& leaf = operands[write.operand].leaf;
    if (leaf && leaf.node.use_count() != 2) return false;
  }
  if (!run_unlocked(lock, [&] { return engine().run_eagerly(s, operands, scalars, given); })) return false;
  const auto fresh = static_cast<uint32_t>(s.results.size() - plan.writes.size());
  for (uint32_t i = 0; i < fresh; ++i) {
    results.push_back(make_tensor(s.results[i], arguments.device));
    storage_of(results.back())->slot.bind(std::move(given[i]));
  }
  for (const Plan::Write& w : plan.writes) {
    if (given[w.result]) write(*arguments.operands[w.operand], std::move(given[w.result]));
  }
  return true;
}

// Bumps versions, so that autograd notices that a saved tensor has changed since.
void count_writes(const Arguments& arguments) {
  for (const uint32_t index : arguments.written_in_lists) {
    const at::Tensor& written = *arguments.operands[index];
    if (!written.is_inference()) written.unsafeGetTensorImpl()->bump_version();
  }
}

// Makes the node, counts it, and starts the graph if it has become too long.
void finish(const Plan& plan, const Operator& op, const Arguments& arguments, Results& results, RecordTimer& timer,
            std::unique_lock<std::mutex> lock) {
  Scalars scalars = take_scalars(plan, arguments);
  const bool is_done =
      C10_UNLIKELY(begin_call(&plan.signature)) && run_eagerly(plan, arguments, scalars, results, lock);
  const uint32_t nodes = is_done ? 0 : emit(plan, arguments, scalars, results);
  lock.unlock();
  if (op.counts_lists) count_writes(arguments);
  counters().ops_recorded.fetch_add(1, std::memory_order_relaxed);
  if (C10_LIKELY(nodes <= most_nodes.load(std::memory_order_relaxed))) return;
  timer.drop();
  if (const at::Tensor tensor = holder(plan, arguments, results); tensor.defined()) start_long_graph(tensor, op.name);
}

// Returns the plan of a call. If its lowering holds the numbers, the numbers become part of the key. Under
// graph_lock().
Plan* find(Arguments& arguments) {
  Plan* plan = find_plan(arguments, arguments.hash());
  if (C10_LIKELY(!plan || !plan->by_value)) return plan;
  arguments.add_numbers_to_key();
  return find_plan(arguments, arguments.hash());
}

// Makes a plan for the first call with this key. Throws Meta's exceptions.
Plan* plan_for(const Operator& op, const c10::IValue* values, Arguments& arguments) {
  RECORD_FUNCTION("pjrt::record_first_call", {});
  std::unique_ptr<Plan> plan = make_timed_plan(op, values, arguments);
  std::lock_guard lock(graph::graph_lock());
  if (plan->signature.lowering_holds_scalars && !arguments.by_value) {
    auto stub = std::make_unique<Plan>();
    stub->by_value = true;
    stub->key = plan->key;
    keep_plan(std::move(stub), arguments.hash());
    arguments.add_numbers_to_key();
    plan->key.assign(arguments.key.begin(), arguments.key.end());
  }
  return keep_plan(std::move(plan), arguments.hash());
}

bool is_lazy_view(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && (value.toTensor().is_conj() || value.toTensor().is_neg());
}

// Returns whether the call writes to a conjugate or negative view.
bool writes_lazy_view(const Operator& op, const c10::IValue* values) {
  if (C10_LIKELY(!op.writes)) return false;
  for (size_t i = 0; i < op.arguments.size(); ++i) {
    if (!op.arguments[i].written) continue;
    if (is_lazy_view(values[i])) return true;
    if (values[i].isTensorList() && std::ranges::any_of(values[i].toListRef(), is_lazy_view)) return true;
  }
  return false;
}

// Records the call with a plain tensor in place of each such view, and copies that to the view.
void record_beside_lazy_views(const Operator& op, torch::jit::Stack& stack) {
  struct Copied {
    at::Tensor view, plain;
  };
  std::vector<Copied> copied;
  const auto plain_of = [&](const c10::IValue& value) -> c10::IValue {
    if (!is_lazy_view(value)) return value;
    copied.push_back({value.toTensor(), value.toTensor().resolve_conj().resolve_neg()});
    return copied.back().plain;
  };
  const size_t first = stack.size() - op.arguments.size();
  for (size_t i = 0; i < op.arguments.size(); ++i) {
    c10::IValue& value = stack[first + i];
    if (!op.arguments[i].written) continue;
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const c10::IValue& element : value.toListRef()) list.push_back(plain_of(element).toTensor());
      value = list;
    } else {
      value = plain_of(value);
    }
  }
  record(op, stack);
  for (const Copied& one : copied) {
    if (one.view.sizes() != one.plain.sizes()) one.view.resize_(one.plain.sizes());
    one.view.copy_(one.plain);
    for (size_t i = first; i < stack.size(); ++i) {
      if (stack[i].isTensor() && stack[i].toTensor().is_same(one.plain)) stack[i] = one.view;
    }
  }
}

}  // namespace

RecordTimer::RecordTimer() {
  if (C10_LIKELY(counters().ops_recorded.load(std::memory_order_relaxed) % Counters::kTimedEvery != 0)) return;
  start(counters().timed_ns);
}

void RecordTimer::start(std::atomic<int64_t>& total) {
  if (in_plan) return;
  total_ = &total;
  start_ = c10::getTime(/*allow_monotonic=*/true);
}

void RecordTimer::stop() { total_->fetch_add(c10::getTime(true) - start_, std::memory_order_relaxed); }

const Plan* record_known(const Operator& op, Arguments& arguments, Plan::Shape shape, RecordTimer& timer,
                         Results& results) {
  if (C10_UNLIKELY(!arguments.recordable || arguments.device < 0)) return nullptr;
  if (op.writes) {
    check_overlap(op, arguments);
    if (C10_UNLIKELY(may_be_sealed())) check_seal(op, arguments);
    if (C10_UNLIKELY(lists_overlap(arguments))) return nullptr;
  }
  std::unique_lock lock(graph::graph_lock());
  const Plan* plan = find(arguments);
  if (C10_UNLIKELY(!plan || plan->on_host || (plan->shape != shape && shape != Plan::Shape::kMixed))) return nullptr;
  if (C10_UNLIKELY(!plan->fitted.empty()) && !scalars_fit(*plan, arguments.scalars)) return nullptr;
  if (C10_UNLIKELY(needs_resizing_first(*plan, arguments))) return nullptr;
  finish(*plan, op, arguments, results, timer, std::move(lock));
  return plan;
}

void record(const Operator& op, torch::jit::Stack& stack) {
  if (C10_UNLIKELY(outlining())) {
    outline_inner(op.op, stack);
    return;
  }
  if (C10_UNLIKELY(op.has_sizes_of_data) && run_sized_on_memory(op, stack)) return;
  c10::IValue* values = stack.data() + (stack.size() - op.arguments.size());
  if (C10_UNLIKELY(writes_lazy_view(op, values))) return record_beside_lazy_views(op, stack);
  RecordTimer timer;
  Arguments arguments;
  flatten(op, values, arguments);
  if (C10_UNLIKELY(op.correction.has_value())) warn_of_degrees_of_freedom(op, values);
  if (C10_UNLIKELY(!arguments.recordable || arguments.device < 0)) {
    timer.drop();
    run_on_host(op, stack, arguments.recordable ? "no argument is on the device" : "an argument can't be recorded");
    return;
  }
  Results results;
  const Plan* plan = record_known(op, arguments, Plan::Shape::kMixed, timer, results);
  if (C10_UNLIKELY(!plan)) {
    timer.drop();
    if (C10_UNLIKELY(lists_overlap(arguments)) &&
        op.op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) {
      op.op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, stack);
      return;
    }
    HeardOnce warnings;
    {
      std::lock_guard lock(graph::graph_lock());
      plan = find_plan(arguments, arguments.hash());
    }
    try {
      if (!plan) plan = plan_for(op, values, arguments);
      if (!plan->on_host && !scalars_fit(*plan, arguments.scalars)) {
        check_scalars(plan->signature, arguments.scalars, plan->fitted);
      }
    } catch (const std::logic_error&) {
      throw;  // a bug of this project, which the host must not hide
    } catch (const graph::NotOnDevice&) {
      throw;
    } catch (const std::exception& error) {
      let_interrupts_pass();
      // Meta refused: a mistake of the user's, or an op whose result depends on data. The host tells them apart.
      if (run_sized(op, stack)) return;
      warnings.host_begins();
      run_on_host_after_meta(op, stack, std::current_exception());
      return;
    }
    if (plan->on_host) {
      warnings.host_begins();
      run_on_host(op, stack, plan->host_reason.c_str());
      return;
    }
    if (needs_resizing_first(*plan, arguments)) {
      resize_first(op, *plan, arguments);
      return record(op, stack);
    }
    finish(*plan, op, arguments, results, timer, std::unique_lock(graph::graph_lock()));
  }
  push_returns(op, *plan, results, stack);
}

}  // namespace tpjrt::device
