// See trial.h.
#include "device/aten_call/trial.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <vector>

#include "device/aten_call/meta.h"
#include "device/aten_call/operator.h"
#include "device/aten_call/stack.h"
#include "device/services/warnings.h"

namespace tpjrt::device {
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
