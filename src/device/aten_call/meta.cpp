// Calls shape functions below every other dispatch key.
#include "device/aten_call/meta.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "device/aten_call/arguments.h"
#include "device/aten_call/operator.h"
#include "device/aten_call/shapes.h"
#include "device/services/modes.h"
#include "device/services/python_hooks.h"
#include "device/tensor/factory.h"
#include "device/tensor/storage.h"
#include "graph/functional_variant.h"

namespace tpjrt::device {

namespace {

// Thrown if a composite kernel calls more than its own `out=`: the op is not structured, or the call's result depends
// on data.
struct NotStructured : std::exception {};

at::Tensor placeholder(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                       std::optional<c10::DeviceIndex> device) {
  if (!device) return at::empty_strided(sizes, strides, at::TensorOptions(c10::kMeta).dtype(dtype));
  return empty_strided(sizes, strides, dtype, std::nullopt, c10::Device(kPjrt, *device), std::nullopt);
}

at::Tensor placeholder(graph::TypePtr type, std::optional<c10::DeviceIndex> device) {
  return placeholder(type->sizes, type->strides, type->dtype, device);
}

// Returns the operand that the parameter is, if it is an `out=`.
std::optional<uint32_t> out_operand(const graph::Signature& signature, size_t i) {
  const graph::Parameter& parameter = signature.parameters[i];
  if (!signature.op->schema().arguments()[i].is_out() || parameter.kind != graph::Parameter::Kind::kTensor) return {};
  return parameter.entries.at(0).index;
}

// The ways to call a shape function.
struct Asking {
  bool scalars_on_host;
  // An `out=` without elements is resized silently. Otherwise PyTorch's Python functions warn of its size, with a
  // garbled message ("{str(shape)}") and in the first call only. The recorder gives that warning.
  bool outs_are_empty;
};

// Makes placeholders on `device` if it is given, else on Meta.
Outline arguments_of(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars,
                     std::optional<c10::DeviceIndex> device, Asking asking) {
  using Entry = graph::Parameter::Entry;
  Outline outline;
  for (const graph::TypePtr type : signature.operands) outline.operands.push_back(placeholder(type, device));
  for (size_t i = 0; i < signature.parameters.size() && asking.outs_are_empty; ++i) {
    if (const std::optional<uint32_t> out = out_operand(signature, i))
      outline.operands.at(*out) = placeholder({0}, {1}, signature.operands[*out]->dtype, device);
  }
  for (const graph::Parameter& parameter : signature.parameters) {
    for (const Entry& entry : parameter.entries) {
      if (entry.wrapped_number && entry.source == Entry::Source::kOperand)
        outline.operands[entry.index].unsafeGetTensorImpl()->set_wrapped_number(true);
    }
  }
  StackTemplate(signature).push(
      outline.results, scalars, [&](uint32_t operand) { return outline.operands[operand]; },
      [&](const Entry& entry) {
        return asking.scalars_on_host ? host_scalar(entry, scalars) : placeholder(entry.type, device);
      });
  return outline;
}

// Makes a call on placeholders, of this device or Meta's.
using MakeCall = std::function<Outline(std::optional<c10::DeviceIndex> device)>;

Outline run_shape_function(const c10::OperatorHandle& op, c10::DeviceIndex device, const MakeCall& call_on) {
  constexpr auto kComposite = c10::DispatchKey::CompositeExplicitAutogradNonFunctional;
  if (op.hasKernelForDispatchKey(kComposite)) {
    const Outlining outlining(op);
    Outline outline = call_on(device);
    try {
      op.callBoxedForDispatchKey(kComposite, outline.results);
      return outline;
    } catch (const NotStructured&) {
    }
  }
  Outline outline = call_on(std::nullopt);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &outline.results);
  return outline;
}

// Returns the `out=` arguments that a shape function resized, in the order of the results; nothing for those that
// kept their sizes.
std::vector<std::optional<uint32_t>> resized_outs(const graph::Signature& signature, const Outline& outline) {
  std::vector<std::optional<uint32_t>> resized;
  for (size_t i = 0; i < signature.parameters.size(); ++i) {
    const std::optional<uint32_t> operand = out_operand(signature, i);
    if (!operand) continue;
    const bool fits = outline.operands.at(*operand).sizes() == c10::IntArrayRef(signature.operands[*operand]->sizes);
    resized.push_back(fits ? std::nullopt : operand);
  }
  return resized;
}

// Meta kernels in Python leave an `out=` that they resize contiguous. TensorIterator gives it the layout of a new
// result.
void lay_out_resized(const graph::Signature& signature, const MakeCall& call_on, Outline& outline) {
  if (!signature.op->schema().is_mutable()) return;
  const std::vector<std::optional<uint32_t>> outs = resized_outs(signature, outline);
  if (std::none_of(outs.begin(), outs.end(), [](const auto& out) { return out.has_value(); })) return;
  const auto variant = graph::functional_variant(*signature.op);
  if (!variant || !variant->op.hasTag(at::Tag::pointwise)) return;
  const Outline functional = run_shape_function(variant->op, signature.device, [&](auto device) {
    Outline given = call_on(device);
    torch::jit::Stack call;
    for (size_t i = 0; i < variant->arguments.size(); ++i) {
      const int64_t source = variant->arguments[i];
      const auto& fallback = variant->op.schema().arguments()[i].default_value();
      call.push_back(source >= 0 ? given.results.at(static_cast<size_t>(source)) : fallback.value_or(c10::IValue()));
    }
    given.results = std::move(call);
    return given;
  });
  const std::vector<at::Tensor> results = tensors_of(functional.results);
  for (size_t i = 0; i < outs.size() && i < results.size(); ++i) {
    if (!outs[i]) continue;
    outline.operands[*outs[i]].unsafeGetTensorImpl()->set_sizes_and_strides(results[i].sizes(), results[i].strides());
  }
}

// The shape functions of this project know only real Scalars; complex ones change the results' dtypes, or are
// refused.
bool has_complex_scalar(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars) {
  using Kind = graph::Parameter::Kind;
  return std::ranges::any_of(signature.parameters, [&](const graph::Parameter& parameter) {
    if (parameter.kind != Kind::kScalar && parameter.kind != Kind::kScalarList) return false;
    return std::ranges::any_of(scalars.slice(parameter.first, parameter.count), [](const graph::ScalarValue& number) {
      return number.kind == graph::ScalarValue::Kind::kComplex;
    });
  });
}

Outline outline(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars, Asking asking) {
  const MakeCall call_on = [&](std::optional<c10::DeviceIndex> device) {
    return arguments_of(signature, scalars, device, asking);
  };
  Outline outline;
  std::optional<torch::jit::Stack> usual;
  if (const ShapeFunction shapes = shape_function(signature.name); shapes && !has_complex_scalar(signature, scalars)) {
    outline = call_on(std::nullopt);
    usual = shapes(outline.results);
  }
  if (usual) {
    outline.results = std::move(*usual);
  } else {
    outline = run_shape_function(*signature.op, signature.device, call_on);
    lay_out_resized(signature, call_on, outline);
  }
  correct(signature, outline);
  return outline;
}

bool has_outs(const graph::Signature& signature) {
  for (size_t i = 0; i < signature.parameters.size(); ++i) {
    if (out_operand(signature, i)) return true;
  }
  return false;
}

bool has_host_numbers(const graph::Signature& signature) {
  using Entry = graph::Parameter::Entry;
  return std::any_of(signature.parameters.begin(), signature.parameters.end(), [](const graph::Parameter& parameter) {
    return std::any_of(parameter.entries.begin(), parameter.entries.end(),
                       [](const Entry& entry) { return entry.source == Entry::Source::kScalar; });
  });
}

}  // namespace

Outline outline(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars) {
  BelowEverything guard;
  // Some shape functions accept no CPU scalar beside the device's tensors, others read it. Some accept only an `out=`
  // of the right size.
  std::vector<Asking> ways = {{.scalars_on_host = true, .outs_are_empty = false}};
  if (has_host_numbers(signature)) ways.push_back({.scalars_on_host = false, .outs_are_empty = false});
  if (has_outs(signature)) ways.insert(ways.begin(), {.scalars_on_host = true, .outs_are_empty = true});
  std::exception_ptr error;
  for (const Asking way : ways) {
    try {
      return outline(signature, scalars, way);
    } catch (...) {
      if (!error && !way.outs_are_empty) error = std::current_exception();
    }
  }
  std::rethrow_exception(error);
}

void outline_inner(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto& schema = op.schema();
  std::string_view outer = outlined()->schema().name();
  if (outer.ends_with('_')) outer.remove_suffix(1);
  if (schema.name() != outer) throw NotStructured();
  torch::jit::Stack outputs;
  const size_t first = stack.size() - schema.arguments().size();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].is_out()) outputs.push_back(std::move(stack[first + i]));
  }
  if (outputs.size() != schema.returns().size()) throw NotStructured();
  stack.resize(first);
  for (c10::IValue& output : outputs) stack.push_back(std::move(output));
}

namespace {

// Stand-ins for a call's tensors, which are passed to the host's kernel in a trial. They are ones, of the call's own
// sizes, or of one element, which is cheap but may be another case. Integers may be indices, so they are ones or
// zeros.
struct Trial {
  bool own_sizes;
  int integer;
};

constexpr std::array<Trial, 4> kTrials = {{{true, 1}, {true, 0}, {false, 1}, {false, 0}}};
constexpr std::array<Trial, 4> kTrialsOfLarge = {{{false, 1}, {false, 0}, {true, 1}, {true, 0}}};
constexpr int64_t kLarge = 1 << 14, kMostTried = 1 << 20;  // elements

// A call with other numbers, or with other dtypes of the tensors that it writes to.
struct Variant {
  const graph::Signature& signature;
  c10::ArrayRef<graph::ScalarValue> scalars;
  c10::ArrayRef<c10::ScalarType> written;  // empty: as in the signature
};

// Gives the call the trial's own generator. Returns false for a call that draws and takes no generator.
bool give_generator(const graph::Signature& signature, torch::jit::Stack& stack) {
  if (!signature.random) return true;
  const Operator& op = Operator::of(*signature.op);
  for (size_t i = 0; i < op.arguments.size(); ++i) {
    if (op.arguments[i].kind != ArgumentKind::kGenerator) continue;
    stack.at(i) = at::detail::createCPUGenerator();
    return true;
  }
  return false;
}

// Runs a trial. Returns false if the call can't be tried. Throws the kernel's exceptions.
bool run(Trial trial, const Variant& variant) {
  const graph::Signature& signature = variant.signature;
  torch::jit::Stack stack = make_stack(signature, variant.scalars, [&](uint32_t operand) {
    const graph::TypePtr type = signature.operands[operand];
    c10::ScalarType dtype = type->dtype;
    for (size_t i = 0; i < signature.mutated.size() && !variant.written.empty(); ++i) {
      if (signature.mutated[i] == operand) dtype = variant.written[i];
    }
    const bool is_integer = c10::isIntegralType(dtype, /*includeBool=*/false);
    const std::vector<int64_t> ones(type->sizes.size(), 1);
    return at::full(trial.own_sizes ? c10::IntArrayRef(type->sizes) : c10::IntArrayRef(ones),
                    is_integer ? trial.integer : 1, at::TensorOptions(c10::kCPU).dtype(dtype));
  });
  if (!give_generator(signature, stack)) return false;
  BelowEverything guard;
  const Unheard unheard;  // drops warnings, of the trial's sizes for example
  signature.op->callBoxed(stack);
  return true;
}

void compare(const Variant& harmless, const Variant& given) {
  int64_t elements = 0;
  for (const graph::TypePtr type : given.signature.operands) elements += c10::multiply_integers(type->sizes);
  for (const Trial trial : elements > kLarge ? kTrialsOfLarge : kTrials) {
    if (trial.own_sizes && elements > kMostTried) return;
    try {
      if (!run(trial, harmless)) return;
    } catch (const std::exception&) {
      continue;
    }
    run(trial, given);
    return;
  }
}

}  // namespace

void check_out_dtypes(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars,
                      c10::ArrayRef<c10::ScalarType> written) {
  compare({signature, scalars, written}, {signature, scalars, {}});
}

void check_scalars(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars,
                   c10::ArrayRef<uint32_t> fitted) {
  std::vector<graph::ScalarValue> ones = scalars.vec();
  for (const uint32_t i : fitted) ones[i] = graph::ScalarValue::of(int64_t{1});
  graph::Signature of_integers = signature;
  for (graph::Parameter& parameter : of_integers.parameters) {
    for (graph::Parameter::Entry& entry : parameter.entries) {
      const bool is_scalar = entry.source == graph::Parameter::Entry::Source::kScalar &&
                             std::ranges::find(fitted, entry.index) != fitted.end();
      if (is_scalar) entry.type = graph::intern_contiguous(c10::kLong, {});
    }
  }
  compare({of_integers, ones, {}}, {signature, scalars, {}});
}

}  // namespace tpjrt::device
