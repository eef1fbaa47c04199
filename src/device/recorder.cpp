// The hot half of recording: from a call on the stack to a node and its tensors.
#include "device/recorder.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/record_function.h>
#include <c10/util/ApproximateClock.h>
#include <c10/util/flat_hash_map.h>

#include "device/access.h"
#include "device/arguments.h"
#include "device/counters.h"
#include "device/eager.h"
#include "device/generator.h"
#include "device/host.h"
#include "device/interrupt.h"
#include "device/meta.h"
#include "device/plan.h"
#include "device/storage.h"

namespace tpjrt::device {
namespace {

using graph::Value;

// What TensorIterator checks on the CPU and Meta can't see: memory that is written twice, or read while it is written.
void check_overlap(const Operator& op, const Arguments& arguments, const c10::IValue* values) {
  for (size_t i = 0; i < op.arguments.size(); ++i) {
    if (!op.arguments[i].written || op.arguments[i].kind != ArgumentKind::kTensor || !values[i].isTensor()) continue;
    const at::Tensor& written = values[i].toTensor();
    if (!written.defined()) continue;
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

// Adds what it lives to the time spent in recording, unless it is dropped or lives within the making of a plan, which is
// timed as a whole.
class Timed {
 public:
  Timed(std::atomic<int64_t>& total, bool on) {
    if (C10_LIKELY(!on) || in_plan) return;
    total_ = &total;
    start_ = c10::getTime(/*allow_monotonic=*/true);
  }
  ~Timed() {
    if (C10_UNLIKELY(total_)) total_->fetch_add(c10::getTime(true) - start_, std::memory_order_relaxed);
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;
  void drop() { total_ = nullptr; }

  static inline thread_local bool in_plan = false;

 private:
  std::atomic<int64_t>* total_ = nullptr;
  int64_t start_ = 0;
};

std::unique_ptr<Plan> make_timed_plan(const Operator& op, const c10::IValue* values, const Arguments& arguments) {
  const Timed timed(counters().plan_ns, true);
  struct InPlan {
    bool before = std::exchange(Timed::in_plan, true);
    ~InPlan() { Timed::in_plan = before; }
  } in_plan;
  at::RecordFunctionGuard unseen(/*is_enabled=*/false);  // a profiler shows what the user called, not what types it
  return make_plan(op, values, arguments);
}

at::Tensor make_bound(const graph::NodePtr& node, uint32_t index, c10::DeviceIndex device) {
  graph::TypePtr type = node->signature->results[index];
  if (!type) return {};
  at::Tensor tensor = make_tensor(type, device);
  storage_of(tensor)->cell.bind(Value{node, index});
  return tensor;
}

// A mutated argument that Meta resized (an `out=` of the wrong size) gets a storage value of the new size at once.
void resize_written(const at::Tensor& tensor, graph::TypePtr type) {
  const auto nbytes = static_cast<size_t>(type->numel()) * c10::elementSize(type->dtype);
  storage_of(tensor)->set_nbytes(std::max(nbytes, storage_of(tensor)->nbytes()));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(type->sizes, type->strides);
}

// Under graph_lock(). `results` get the fresh tensors. Gives the size of the component that the node is part of.
uint32_t emit(const Plan& plan, const Arguments& arguments, std::optional<at::Generator> generator,
              c10::SmallVectorImpl<at::Tensor>& results) {
  c10::SmallVector<Value, 8> operands;
  for (const at::Tensor* tensor : arguments.operands) operands.push_back(read(*tensor));
  c10::SmallVector<graph::Number, 4> numbers(arguments.numbers.begin(), arguments.numbers.end());
  if (plan.signature.random) {
    const auto [seed, offset] = next_key(generator, arguments.device);
    numbers.push_back(graph::Number::key(seed));
    numbers.push_back(graph::Number::key(offset));
  }
  const graph::NodePtr node = graph::make_node(&plan.signature, operands, numbers);
  const auto fresh = static_cast<uint32_t>(plan.signature.results.size() - plan.writes.size());
  for (uint32_t i = 0; i < fresh; ++i) results.push_back(make_bound(node, i, arguments.device));
  for (const Plan::Write& w : plan.writes) {
    const at::Tensor& tensor = *arguments.operands[w.operand];
    if (w.resized) resize_written(tensor, plan.signature.results[w.result]);
    write(tensor, Value{node, w.result});
  }
  return graph::Component::root(node->component.get())->nodes;
}

// One of the tensors that hold a result of the call; undefined where none does.
at::Tensor holder(const Plan& plan, const Arguments& arguments, c10::ArrayRef<at::Tensor> results) {
  for (const at::Tensor& tensor : results) {
    if (tensor.defined()) return tensor;
  }
  return plan.writes.empty() ? at::Tensor() : *arguments.operands[plan.writes[0].operand];
}

void push_returns(const Operator& op, const Plan& plan, c10::SmallVectorImpl<at::Tensor>& results,
                  torch::jit::Stack& stack) {
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

std::optional<at::Generator> generator_of(const Operator& op, const c10::IValue* values) {
  for (size_t i = 0; i < op.arguments.size(); ++i) {
    if (op.arguments[i].kind == ArgumentKind::kGenerator && !values[i].isNone()) return values[i].toGenerator();
  }
  return std::nullopt;
}

}  // namespace

void record(const Operator& op, torch::jit::Stack& stack) {
  if (C10_UNLIKELY(outlining())) {
    outline_inner(op.op, stack);
    return;
  }
  Timed timed(counters().timed_ns,
              counters().ops_recorded.load(std::memory_order_relaxed) % Counters::kTimedEvery == 0);
  c10::IValue* values = stack.data() + (stack.size() - op.arguments.size());
  Arguments arguments;
  flatten(op, values, arguments);
  if (C10_UNLIKELY(!arguments.recordable || arguments.device < 0)) {
    timed.drop();
    run_on_host(op, stack, arguments.recordable ? "no argument is on the device" : "an argument can't be recorded");
    return;
  }
  if (op.writes) check_overlap(op, arguments, values);
  uint64_t hash = arguments.hash();
  std::optional<at::Generator> generator;
  if (op.random) generator = generator_of(op, values);
  c10::SmallVector<at::Tensor, 4> results;
  Plan* plan = nullptr;
  uint32_t nodes = 0;
  bool by_value = false;
  {
    std::lock_guard lock(graph::graph_lock());
    plan = find_plan(arguments, hash);
    if (C10_UNLIKELY(plan && plan->by_value)) {
      by_value = true;
      arguments.add_numbers_to_key();
      hash = arguments.hash();
      plan = find_plan(arguments, hash);
    }
    if (plan && !plan->on_host) nodes = emit(*plan, arguments, generator, results);
  }
  if (C10_UNLIKELY(!plan)) {
    RECORD_FUNCTION("pjrt::record_first_call", {});
    std::unique_ptr<Plan> fresh;
    try {
      timed.drop();
      fresh = make_timed_plan(op, values, arguments);
    } catch (const std::logic_error&) {
      throw;  // a bug of ours: the host must not hide it
    } catch (const std::exception& error) {
      let_interrupts_pass();
      // Meta refused: the user's mistake, or an op whose result depends on data. The host tells which.
      run_on_host_after_meta(op, stack, std::current_exception());
      return;
    }
    std::lock_guard lock(graph::graph_lock());
    if (fresh->signature.lowering_holds_numbers && !by_value) {
      auto stub = std::make_unique<Plan>();
      stub->by_value = true;
      stub->key = fresh->key;
      keep_plan(std::move(stub), hash);
      arguments.add_numbers_to_key();
      hash = arguments.hash();
      fresh->key.assign(arguments.key.begin(), arguments.key.end());
    }
    plan = keep_plan(std::move(fresh), hash);
    if (!plan->on_host) nodes = emit(*plan, arguments, generator, results);
  }
  if (plan->on_host) {
    timed.drop();
    run_on_host(op, stack, plan->host_reason.c_str());
    return;
  }
  counters().ops_recorded.fetch_add(1, std::memory_order_relaxed);
  if (C10_UNLIKELY(nodes > most_nodes.load(std::memory_order_relaxed))) {
    timed.drop();
    if (const at::Tensor tensor = holder(*plan, arguments, results); tensor.defined()) cut(tensor, op.name);
  }
  push_returns(op, *plan, results, stack);
}

void Recorder::operator()(const c10::OperatorHandle& /*op*/, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  record(operator_, *stack);
}

void record_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static thread_local ska::flat_hash_map<const c10::FunctionSchema*, const Operator*> known;
  const Operator*& entry = known[&op.schema()];
  if (!entry) {
    static auto* lock = new std::mutex;
    static auto* operators = new std::map<const c10::FunctionSchema*, std::unique_ptr<Operator>>;
    std::lock_guard guard(*lock);
    auto& slot = (*operators)[&op.schema()];
    if (!slot) slot = std::make_unique<Operator>(op);
    entry = slot.get();
  }
  record(*entry, *stack);
}

}  // namespace tpjrt::device
