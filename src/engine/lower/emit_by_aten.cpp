// Decides which calls go to CPU kernels, and emits their custom calls.
#include "engine/lower/emit_call.h"

#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "device/aten_call/arguments.h"
#include "device/aten_call/meta.h"
#include "engine/kernel/kernel_call.h"
#include "graph/functional_variant.h"
#include "hlo/type.h"
#include "kernels/cpu/kept_call.h"
#include "kernels/host/host_kernel.h"
#include "ops/claims/claims.h"
#include "ops/rule/by_aten.h"
#include "ops/rule/dims.h"

namespace tpjrt::engine {
namespace {

using graph::Parameter;
using graph::ScalarValue;
using graph::Signature;
using graph::TypePtr;
using hlo::Type;
using hlo::Value;
using hlo::Values;
using Entry = Parameter::Entry;

std::string text_of(const Entry& entry) {
  const std::string place = std::to_string(entry.index) + (entry.wrapped_number ? "w" : "");
  switch (entry.source) {
    case Entry::Source::kUndefined: return "none";
    case Entry::Source::kOperand: return "%" + place;
    case Entry::Source::kScalar: break;
  }
  return "#" + place;
}

std::string text_of(const Parameter& parameter) {
  std::ostringstream out;
  switch (parameter.kind) {
    case Parameter::Kind::kConstant: out << parameter.constant; break;
    case Parameter::Kind::kTensor: out << text_of(parameter.entries.at(0)); break;
    case Parameter::Kind::kTensorList:
      for (const Entry& entry : parameter.entries)
        out << (&entry == parameter.entries.data() ? "[" : ", ") << text_of(entry);
      out << (parameter.entries.empty() ? "[]" : "]");
      break;
    case Parameter::Kind::kScalar:
    case Parameter::Kind::kScalarList: out << "#" << parameter.first << "+" << parameter.count; break;
  }
  return out.str();
}

// The call as text without its types: "aten::linalg_qr(A=%0, mode=reduced)".
std::string text_of(const Signature& signature) {
  std::string text = signature.name + "(", separator;
  for (const Parameter& parameter : signature.parameters) {
    text += std::exchange(separator, ", ") + parameter.name + "=" + text_of(parameter);
  }
  return text + ")";
}

constexpr int64_t kImages = 4;  // rank of a batch of images

// Returns the op's variant with out= arguments, if every result has memory.
std::optional<c10::OperatorHandle> with_out(const Signature& signature) {
  const bool has_places = std::ranges::all_of(signature.results, [](TypePtr type) { return type != nullptr; });
  return has_places ? graph::out_variant_on_cpu(*signature.op) : std::nullopt;
}

// A recorded call within a program. Its arguments are the operands, the scalars, and the key of a draw.
struct RecordedCall {
  std::shared_ptr<Signature> signature;
  std::shared_ptr<const KernelCall> kernel;

  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& arguments,
                                     const std::vector<at::Tensor>& places) const {
    const auto scalars_end = arguments.end() - (signature->random ? 1 : 0);
    const auto operands_end = arguments.begin() + std::ssize(signature->operands);
    std::vector<at::Tensor> operands(arguments.begin(), operands_end), all, results;
    std::vector<ScalarValue> scalars;
    for (auto number = operands_end; number != scalars_end; ++number)
      scalars.push_back(ScalarValue::of(number->item()));
    kernels::RandomState key{};
    if (signature->random) std::copy_n(arguments.back().const_data_ptr<uint64_t>(), key.size(), key.begin());
    torch::jit::Stack stack;
    kernel->compute(scalars, key, operands, places, stack, all);
    for (size_t i = 0; i < all.size(); ++i) {
      if (signature->results[i]) results.push_back(std::move(all[i]));
    }
    return results;
  }
};

// Returns the op that overwrites the first operand, if it is better and nothing else of the call uses that operand.
std::optional<c10::OperatorHandle> in_place(const Signature& signature, const Values& operands) {
  const ops::Platforms* platforms = ops::RuleTable::instance().platforms_of(signature.name);
  if (!platforms || !platforms->aten_in_place || signature.results.size() != 1) return std::nullopt;
  const TypePtr written = signature.operands.at(0), result = signature.results[0];
  if (!result || result->dtype != written->dtype || result->sizes != written->sizes) return std::nullopt;
  size_t uses =
      std::count_if(operands.begin() + 1, operands.end(), [&](const Value& x) { return x.id == operands[0].id; });
  for (const Parameter& parameter : signature.parameters) {
    for (const Entry& entry : parameter.entries) uses += entry.source == Entry::Source::kOperand && entry.index == 0;
  }
  return uses == 1 ? graph::in_place_variant_on_cpu(*signature.op) : std::nullopt;
}

int64_t elements_of(const std::vector<TypePtr>& types) {
  int64_t elements = 0;
  for (const TypePtr type : types) elements += type ? type->numel() : 0;
  return elements;
}

int64_t work_of(const Signature& signature, const ops::Platforms& platforms) {
  if (platforms.aten_work) return platforms.aten_work(signature.operands);
  return elements_of(platforms.aten_of_results ? signature.results : signature.operands);
}

// The least number of elements for which such a call is made.
int64_t least(int64_t given) { return ops::Machine::here().takes_all ? 1 : given; }

bool may_be_called(const Signature& signature, ops::Target target) {
  if (target != ops::Target::kCpuWithKernels || !signature.op || !signature.mutated.empty()) return false;
  if (signature.random) return kernels::host_kernel(signature) != nullptr;
  return signature.op->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
}

// Returns a number that any such kernel may read in this place. Indices, lengths and offsets address memory, and not
// every kernel checks them, so they are 0; pivots count from 1. Other numbers are 1, which has an inverse.
int64_t harmless(const Signature& signature, uint32_t operand) {
  const c10::ScalarType dtype = signature.operands[operand]->dtype;
  if (!c10::isIntegralType(dtype, /*includeBool=*/false)) return 1;
  return std::ranges::any_of(signature.parameters, [&](const Parameter& parameter) {
    return parameter.name.ends_with("pivots") && std::ranges::any_of(parameter.entries, [&](const Entry& entry) {
             return entry.source == Entry::Source::kOperand && entry.index == operand;
           });
  });
}

// Returns the type that determines the call's dtype.
graph::TypePtr first_of(const Signature& signature) {
  return signature.operands.empty() ? signature.results.at(0) : signature.operands[0];
}

}  // namespace

bool is_aten_call(const Signature& signature, ops::Target target) {
  return may_be_called(signature, target) && signature.op->schema().name().starts_with("aten::");
}

bool is_own_kernel(const Signature& signature, ops::Target target) {
  return may_be_called(signature, target) && signature.op->schema().name().starts_with("torch_pjrt::sparse_");
}

bool is_implemented(const Signature& signature, c10::ArrayRef<ScalarValue> scalars) {
  constexpr int64_t kMostTried = 1 << 14;
  int64_t elements = 0;
  for (const TypePtr type : signature.operands) elements += type->numel();
  if (elements > kMostTried) return true;
  struct Heard : c10::WarningHandler {
    void process(const c10::Warning& /*warning*/) override { any = true; }
    bool any = false;
  } heard;
  const c10::WarningUtils::WarningHandlerGuard guard(&heard);
  try {
    torch::jit::Stack stack = device::make_stack(signature, scalars, [&](uint32_t operand) {
      const TypePtr type = signature.operands[operand];
      return at::full(type->sizes, harmless(signature, operand), at::TensorOptions(c10::kCPU).dtype(type->dtype));
    });
    for (c10::IValue& value : stack) {
      if (value.isDevice()) value = c10::Device(c10::kCPU);
    }
    const device::BelowEverything below;
    signature.op->callBoxed(stack);
  } catch (const c10::LinAlgError&) {  // from these values: a singular matrix, for example
  } catch (const std::exception&) {
    return false;
  }
  return !heard.any;
}

bool is_better_by_aten(const Signature& signature, ops::Target target) {
  const ops::Platforms* platforms = ops::RuleTable::instance().platforms_of(signature.name);
  if (!platforms || platforms->aten_from < 0) return false;
  if (!may_be_called(signature, target)) return false;
  if (!(platforms->aten_kinds & ops::kind_of(ops::element_of(first_of(signature)->dtype)))) return false;
  return work_of(signature, *platforms) >= least(platforms->aten_from);
}

bool is_nhwc_better_by_aten(const Signature& signature, ops::Target target) {
  const ops::Platforms* platforms = ops::RuleTable::instance().platforms_of(signature.name);
  if (!platforms || platforms->aten_from_nhwc < 0 || signature.operands.empty()) return false;
  if (signature.operands[0]->rank() != kImages || !may_be_called(signature, target)) return false;
  return work_of(signature, *platforms) >= least(platforms->aten_from_nhwc);
}

Values emit_aten_call(ops::Emit& e, const Signature& signature, const Values& operands,
                      const std::vector<LoweredScalar>& scalars, const Value& key) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      e.target() == ops::Target::kCpuWithKernels, "[", signature.name,
      "] is a kernel of the CPU's here, which only programs that this process runs can call: give "
      "its result as an argument, or leave the function to jit or compile_step");
  Values given = operands;
  for (const LoweredScalar& number : scalars) given.push_back(number.value);
  if (signature.random) given.push_back(key);
  const bool last = e.is_nhwc() && is_nhwc_better_by_aten(signature, e.target());
  const auto order_of = [&](const hlo::Dims& dims) {
    return last && std::ssize(dims) == kImages ? ops::channels_last(kImages) : hlo::Dims();
  };
  ops::Emit::Orders orders;
  int64_t elements = 0;
  for (const Value& value : given) {
    orders.operands.push_back(order_of(value.dims()));
    elements += value.type.elements();
  }
  std::vector<Type> types;
  for (const TypePtr type : signature.results) {
    if (!type) continue;
    types.push_back(e.type_of(*type));
    orders.results.push_back(order_of(types.back().dims));
    elements += types.back().elements();
  }
  const auto kept = std::make_shared<Signature>(signature);  // the original may be freed if it is part of another
  kept->lowering = nullptr;
  kept->on_host = nullptr;
  Variants variants{.in_place = in_place(signature, operands)};
  const bool is_over = variants.in_place.has_value();
  if (!is_over) variants.out = with_out(signature);
  kernels::KeptCall call;
  constexpr int64_t kGrain = 1 << 15;  // what ATen gives one thread
  call.is_large = elements > kGrain;
  call.run = RecordedCall{
      kept, std::make_shared<KernelCall>(kept.get(), c10::kCPU, /*is_kernel_usable=*/true, std::move(variants))};
  const Values results = ops::emit_kept(e, text_of(signature), given, types, std::move(call), orders,
                                        is_over ? std::optional<size_t>(0) : std::nullopt);
  Values all;
  size_t next = 0;
  for (const TypePtr type : signature.results) all.push_back(type ? results[next++] : Value{});
  return all;
}

}  // namespace tpjrt::engine
