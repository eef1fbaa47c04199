// Chooses a lowering: a rule, the functional variant, single elements of a list, or a decomposition.
#include "engine/lower/call_lowering.h"

#include <ATen/core/stack.h>

#include <atomic>
#include <unordered_map>

#include "device/aten_call/meta.h"
#include "device/services/modes.h"
#include "device/services/python_hooks.h"
#include "device/tensor/access.h"
#include "device/tensor/storage.h"
#include "engine/lower/emit_call.h"
#include "graph/errors.h"
#include "graph/functional_variant.h"

namespace tpjrt::engine {
namespace {

using graph::Parameter;
using graph::ScalarValue;
using graph::Signature;
using graph::TypePtr;
using Entry = Parameter::Entry;
using InnerCall = CallLowering::InnerCall;

std::atomic<Decomposer> python_decomposer{nullptr};

// Maps the outer call's parameters to another operator's. `element` picks one entry of each list; -1 keeps lists.
class InnerCallBuilder {
 public:
  InnerCallBuilder(const Signature& outer, const graph::OpVariant& variant, int64_t element)
      : outer_(outer), variant_(variant), element_(element) {}

  InnerCall build(c10::ArrayRef<ScalarValue> scalars) {
    call_.signature = std::make_unique<Signature>();
    Signature& inner = *call_.signature;
    inner.name = graph::full_name(variant_.op);
    inner.op = variant_.op;
    inner.device = outer_.device;
    inner.random = outer_.random;
    inner.composites = outer_.composites;
    inner.file = outer_.file;
    inner.line = outer_.line;
    const auto& declared = variant_.op.schema().arguments();
    for (size_t i = 0; i < declared.size(); ++i) {
      const int64_t source = variant_.arguments[i];
      Parameter parameter =
          source < 0 ? default_of(declared[i]) : moved(outer_.parameters[static_cast<size_t>(source)]);
      parameter.name = declared[i].name();
      inner.parameters.push_back(std::move(parameter));
    }
    inner.scalars = static_cast<uint32_t>(call_.scalars.size());
    infer_results(inner, scalars);
    if (inner.random) inner.scalars += 2;
    return std::move(call_);
  }

 private:
  // A factory takes its options from the tensor that it writes to, so that Meta needs no memory.
  Parameter default_of(const c10::Argument& declared) const {
    Parameter parameter;
    if (declared.name() == "dtype" && outer_.mutated.size() == 1) {
      parameter.constant = static_cast<int64_t>(outer_.results.back()->dtype);
    } else if (declared.name() == "device") {
      parameter.constant = c10::Device(c10::kMeta);
    } else {
      parameter.constant = declared.default_value().value_or(c10::IValue());
    }
    return parameter;
  }

  Entry moved(Entry entry) {
    if (entry.source == Entry::Source::kOperand) {
      call_.operands.push_back(entry.index);
      call_.signature->operands.push_back(entry.type);
      entry.index = static_cast<uint32_t>(call_.operands.size() - 1);
    } else if (entry.source == Entry::Source::kScalar) {
      call_.scalars.push_back(entry.index);
      entry.index = static_cast<uint32_t>(call_.scalars.size() - 1);
    }
    return entry;
  }

  Parameter moved(const Parameter& outer) {
    Parameter inner = outer;
    if (element_ >= 0 && inner.kind == Parameter::Kind::kTensorList) {
      inner.kind = Parameter::Kind::kTensor;
      inner.entries = {inner.entries.at(static_cast<size_t>(element_))};
    }
    for (Entry& entry : inner.entries) entry = moved(entry);
    if (inner.kind == Parameter::Kind::kScalar || inner.kind == Parameter::Kind::kScalarList) {
      uint32_t first = inner.first;
      uint32_t count = inner.count;
      if (element_ >= 0 && inner.kind == Parameter::Kind::kScalarList) {
        first += static_cast<uint32_t>(element_);
        count = 1;
        inner.kind = Parameter::Kind::kScalar;
      }
      inner.first = static_cast<uint32_t>(call_.scalars.size());
      inner.count = count;
      for (uint32_t k = 0; k < count; ++k) call_.scalars.push_back(first + k);
    }
    return inner;
  }

  void infer_results(Signature& inner, c10::ArrayRef<ScalarValue> scalars) {
    std::vector<ScalarValue> mine;
    for (const uint32_t index : call_.scalars) mine.push_back(scalars[index]);
    for (const at::Tensor& meta : device::tensors_of(device::outline(inner, mine).results)) {
      inner.results.push_back(!meta.defined() ? nullptr : graph::intern_contiguous(meta.scalar_type(), meta.sizes()));
    }
  }

  const Signature& outer_;
  const graph::OpVariant& variant_;
  int64_t element_;
  InnerCall call_;
};

// Appends an inner call, whose results are the next of the outer results.
bool add_inner_call(CallLowering& lowering, const Signature& outer, InnerCall inner_call,
                    c10::ArrayRef<ScalarValue> scalars, uint32_t first_result, ops::Target target,
                    std::string& reason) {
  const auto count = static_cast<uint32_t>(inner_call.signature->results.size());
  if (first_result + count > outer.results.size()) return false;
  for (uint32_t i = 0; i < count; ++i) inner_call.results.push_back(first_result + i);
  std::vector<ScalarValue> mine;
  for (const uint32_t index : inner_call.scalars) mine.push_back(scalars[index]);
  if (!find_lowering(*inner_call.signature, mine, target, reason)) return false;
  outer.lowering_holds_scalars |= inner_call.signature->lowering_holds_scalars;
  lowering.ops += lowering_of(*inner_call.signature).ops;
  lowering.inner_calls.push_back(std::move(inner_call));
  return true;
}

// Some shape functions of in-place and out= ops don't check that the result fits into the tensor that is written to.
void refuse_impossible_writes(const Signature& outer, const Signature& inner, c10::ArrayRef<ScalarValue> scalars) {
  if (inner.results.size() != outer.results.size() || outer.mutated.size() != outer.results.size()) return;
  const bool in_place = outer.op->schema().name().ends_with('_');
  std::vector<c10::ScalarType> dtypes;
  bool same = true;
  for (size_t i = 0; i < outer.results.size(); ++i) {
    if (!outer.results[i] || !inner.results[i]) return;
    dtypes.push_back(inner.results[i]->dtype);
    same &= dtypes.back() == outer.results[i]->dtype;
    if (!c10::canCast(inner.results[i]->dtype, outer.results[i]->dtype) && in_place) {
      throw ops::Mistake("its result can't be cast to the dtype of what it is written to");
    }
    if (in_place && inner.results[i]->sizes != outer.results[i]->sizes) {
      throw ops::Mistake("its result has another shape than what it is written to");
    }
  }
  if (!same && !in_place) device::check_out_dtypes(outer, scalars, dtypes);
}

bool lower_by_functional_variant(CallLowering& lowering, const Signature& signature, c10::ArrayRef<ScalarValue> scalars,
                                 ops::Target target, std::string& reason) {
  const auto variant = graph::functional_variant(*signature.op);
  if (!variant) return false;
  InnerCall inner_call = InnerCallBuilder(signature, *variant, -1).build(scalars);
  refuse_impossible_writes(signature, *inner_call.signature, scalars);
  return inner_call.signature->results.size() == signature.results.size() &&
         add_inner_call(lowering, signature, std::move(inner_call), scalars, 0, target, reason);
}

bool lower_by_element(CallLowering& lowering, const Signature& signature, c10::ArrayRef<ScalarValue> scalars,
                      ops::Target target, std::string& reason) {
  const auto variant = graph::element_variant(*signature.op);
  if (!variant) return false;
  for (uint32_t i = 0; i < signature.results.size(); ++i) {
    InnerCall inner_call = InnerCallBuilder(signature, *variant, i).build(scalars);
    if (inner_call.signature->results.size() != 1 ||
        !add_inner_call(lowering, signature, std::move(inner_call), scalars, i, target, reason)) {
      lowering.inner_calls.clear();
      return false;
    }
  }
  return true;
}

// A call whose decomposition this thread is tracing.
struct UnderWay {
  explicit UnderWay(const Signature& signature) : signature(signature) { all().push_back(this); }
  ~UnderWay() { all().pop_back(); }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

  static std::vector<UnderWay*>& all() {
    static thread_local std::vector<UnderWay*> calls;
    return calls;
  }

  const Signature& signature;
  bool ends_in_itself = false;
};

constexpr const char* kNoDecomposition = "it has no lowering rule and no decomposition";

// The origin of a decomposition: PyTorch's Python function, or the composite kernel that backends without their own
// use.
enum class Source : uint8_t { kPython, kComposite };

bool decompose(Source source, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (source == Source::kPython) {
    const Decomposer decomposer = python_decomposer;
    return decomposer && decomposer(op, stack);
  }
  for (const auto key :
       {c10::DispatchKey::CompositeExplicitAutogradNonFunctional, c10::DispatchKey::CompositeExplicitAutograd}) {
    if (!op.hasKernelForDispatchKey(key)) continue;
    op.callBoxedForDispatchKey(key, stack);
    return true;
  }
  return false;
}

// Traces a decomposition on placeholders with the recorder, and keeps the nodes.
bool trace(Source source, Subgraph& graph, const Signature& signature, c10::ArrayRef<ScalarValue> scalars,
           std::string& reason) {
  graph.placeholders.clear();
  graph.results.clear();
  std::vector<at::Tensor> tensors;
  for (const TypePtr type : signature.operands) tensors.push_back(graph.add_placeholder(type, signature.device));
  torch::jit::Stack stack = device::make_stack(signature, scalars, [&](uint32_t operand) { return tensors[operand]; });
  forget_wrong_rule();
  try {
    device::BelowEverything below;
    device::StaysLazy lazy;
    Unwatched unwatched;
    if (!decompose(source, *signature.op, stack)) {
      if (reason.empty()) reason = kNoDecomposition;
      return false;
    }
  } catch (const std::exception& error) {
    device::let_interrupts_pass();
    rethrow_wrong_rule();
    const std::string what = error.what();
    reason = "its decomposition can't be traced: " + what.substr(0, what.find('\n'));
    return false;
  }
  std::lock_guard lock(graph::graph_lock());
  const size_t fresh = signature.results.size() - signature.mutated.size();
  for (const at::Tensor& tensor : device::tensors_of(stack)) {
    if (graph.results.size() == fresh) break;  // returned as well as written
    graph.results.push_back(tensor.defined() && device::is_pjrt(tensor) ? device::read(tensor) : graph::Value{});
  }
  for (const uint32_t operand : signature.mutated) graph.results.push_back(device::read(tensors[operand]));
  for (size_t i = 0; i < graph.results.size(); ++i) {
    if (static_cast<bool>(graph.results[i]) != (signature.results[i] != nullptr)) {
      reason = "its decomposition gives other results than its Meta kernel";
      return false;
    }
  }
  if (graph.results.size() != signature.results.size()) {
    reason = "its decomposition gives another number of results";
    return false;
  }
  return true;
}

bool lower_by_decomposition(CallLowering& lowering, const Signature& signature, c10::ArrayRef<ScalarValue> scalars,
                            std::string& reason) {
  // A decomposition that calls itself would never end. This throws instead of returning false, because a plan must not
  // conclude that the call can't be lowered: the outer, equal call may have another way.
  for (UnderWay* outer : UnderWay::all()) {
    if (outer->signature.name == signature.name && outer->signature.operands == signature.operands) {
      outer->ends_in_itself = true;
      throw graph::DependsOnData("its decomposition ends in itself");
    }
  }
  UnderWay call(signature);
  if (trace(Source::kPython, lowering.decomposition, signature, scalars, reason) ||
      trace(Source::kComposite, lowering.decomposition, signature, scalars, reason)) {
    return true;
  }
  const std::string& op = signature.op->schema().name();
  if (op.starts_with("aten::linalg_") || op.starts_with("aten::_linalg_")) {
    reason = "XLA has no op for this linear algebra, which the host does with LAPACK and BLAS";
  } else if (call.ends_in_itself) {
    reason = kNoDecomposition;
  }
  return false;
}

}  // namespace

at::Tensor Subgraph::add_placeholder(TypePtr type, c10::DeviceIndex device) {
  at::Tensor tensor = device::make_tensor(type, device);
  if (!tensor.is_non_overlapping_and_dense()) {  // a node reads a view with gaps (x[::2]), densely
    type = graph::intern_contiguous(type->dtype, type->sizes);
    tensor = device::make_tensor(type, device);
  }
  placeholders.push_back(graph::make_leaf(type, nullptr));
  std::lock_guard lock(graph::graph_lock());
  device::storage_of(tensor)->slot.bind({placeholders.back(), 0});
  return tensor;
}

bool is_tracing_decomposition() { return !UnderWay::all().empty(); }

void install_decomposer(Decomposer decomposer) { python_decomposer = decomposer; }

const CallLowering& lowering_of(const Signature& signature) {
  if (!signature.lowering) {  // recording doesn't look up this project's own nodes
    auto lowering = std::make_shared<CallLowering>();
    lowering->rule = ops::RuleTable::instance().find(signature.name);
    if (!lowering->rule) throw graph::InternalError("no lowering for " + signature.name);
    signature.lowering = lowering;
  }
  return *static_cast<const CallLowering*>(signature.lowering.get());
}

Subgraph decomposition_of(const Signature& signature, c10::ArrayRef<ScalarValue> scalars) {
  CallLowering lowering;
  std::string reason;
  if (!lower_by_decomposition(lowering, signature, scalars, reason)) throw ops::Unsupported(reason);
  return std::move(lowering.decomposition);
}

const char* way_of(const Signature& signature) {
  if (!signature.op) return "";
  const CallLowering& lowering = lowering_of(signature);
  if (lowering.by_aten) return "kernel";
  if (lowering.rule) return "rule";
  if (!lowering.inner_calls.empty()) return way_of(*lowering.inner_calls[0].signature);
  return "decomposition";
}

bool find_lowering(const Signature& signature, c10::ArrayRef<ScalarValue> scalars, ops::Target target,
                   std::string& reason) {
  auto lowering = std::make_shared<CallLowering>();
  std::string why;
  if (is_own_kernel(signature, target)) {
    lowering->by_aten = true;
    signature.lowering = lowering;
    if (try_emit(signature, scalars, target, why, lowering->ops)) return true;
    lowering->by_aten = false;
  }
  lowering->rule = ops::RuleTable::instance().find(signature.name);
  if (lowering->rule) {
    signature.lowering = lowering;
    if (try_emit(signature, scalars, target, why, lowering->ops)) {
      lowering->by_aten = is_better_by_aten(signature, target);
      if (lowering->by_aten) lowering->ops = 1;
      return true;
    }
    lowering->rule = nullptr;
  }
  if (lower_by_functional_variant(*lowering, signature, scalars, target, why) ||
      lower_by_element(*lowering, signature, scalars, target, why)) {
    signature.lowering = lowering;
    return true;
  }
  lowering->inner_calls.clear();
  std::string second;
  if (lower_by_decomposition(*lowering, signature, scalars, second)) {
    signature.lowering = lowering;
    signature.lowering_holds_scalars = !scalars.empty();
    if (try_emit(signature, scalars, target, second, lowering->ops)) {
      lowering->by_aten = is_better_by_aten(signature, target) && is_implemented(signature, scalars);
      return true;
    }
  }
  if (is_aten_call(signature, target) && is_implemented(signature, scalars)) {
    signature.lowering_holds_scalars = false;
    lowering->decomposition = {};
    lowering->by_aten = true;
    signature.lowering = lowering;
    std::string third;
    if (try_emit(signature, scalars, target, third, lowering->ops)) return true;
  }
  signature.lowering = nullptr;
  signature.lowering_holds_scalars = false;
  reason = why.empty() ? second : why;
  return false;
}

}  // namespace tpjrt::engine
