// Decides which overloads are boxed, and reads their schemas.
#include "device/aten_call/operator.h"

#include <ATen/core/enum_tag.h>

#include <limits>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "graph/functional_variant.h"

namespace tpjrt::device {
namespace {

using c10::DispatchKey;

bool is_tensor(const c10::Type& type) {
  if (const auto* optional = type.castRaw<c10::OptionalType>()) return is_tensor(*optional->getElementType());
  return type.kind() == c10::TypeKind::TensorType;
}
bool is_tensor_list(const c10::Type& type) {
  if (const auto* optional = type.castRaw<c10::OptionalType>()) return is_tensor_list(*optional->getElementType());
  const auto* list = type.castRaw<c10::ListType>();
  return list && is_tensor(*list->getElementType());
}
const c10::Type& without_optional(const c10::Type& type) {
  if (const auto* optional = type.castRaw<c10::OptionalType>()) return *optional->getElementType();
  return type;
}

// Returns whether the op writes an argument without saying so in its schema (Note [Incorrect schemas]).
bool writes_silently(std::string_view name, size_t argument) {
  if (name == "aten::native_batch_norm") return argument == 3 || argument == 4;
  if (name == "aten::batch_norm_update_stats") return argument == 1 || argument == 2;
  if (name == "aten::batch_norm_gather_stats" || name == "aten::batch_norm_gather_stats_with_counts") {
    return argument == 3 || argument == 4;
  }
  return false;
}

// Returns whether the argument is written with a grad_scale only, and then by separate calls (fused_optimizers.cpp).
bool is_written_apart(std::string_view name, std::string_view argument) {
  return argument == "grads" && name.starts_with("aten::_fused_");
}

// Returns whether the op's Meta kernel or rule refuses some Scalars: another norm of nothing, a slope below zero.
bool refuses_numbers(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {
      "linalg_vector_norm",  "norm", "renorm", "renorm_",    "elu_backward",
      "leaky_relu_backward", "celu", "celu_",  "softshrink", "histc"};
  return kNames.contains(name);
}

// Returns the range of floats and ints that programs change from step to step. Within it they are numbers of a node,
// like Scalars.
std::optional<Usual> usual_input(std::string_view name, std::string_view argument) {
  const Usual any, positive{std::numeric_limits<double>::denorm_min()}, not_negative{0}, probability{0, 1};
  const Usual of_any_float{-1e4, 1e4}, up_to_there{-1e4, 1e4, 0};
  const Usual integer{-0x1p24, 0x1p24, {}, true}, above_integer{-0x1p24, 0x1p24, 1, true};
  static const std::unordered_map<std::string_view, std::unordered_map<std::string_view, Usual>> kArguments = {
      {"momentum",  // the mean of all batches so far: 1 / n
       {{"native_batch_norm", any}, {"_native_batch_norm_legit", any}, {"_native_batch_norm_legit_functional", any}}},
      {"mean", {{"normal_", any}, {"normal_functional", any}, {"normal", any}}},
      {"std", {{"normal_", not_negative}, {"normal_functional", not_negative}, {"normal", not_negative}}},
      {"from", {{"uniform_", of_any_float}, {"uniform", of_any_float}, {"random_", integer}, {"random", integer}}},
      {"to",
       {{"uniform_", up_to_there}, {"uniform", up_to_there}, {"random_", above_integer}, {"random", above_integer}}},
      {"p", {{"native_dropout", not_negative}, {"bernoulli_", probability}, {"bernoulli", probability}}},
      {"lambd", {{"exponential_", positive}, {"exponential", positive}}},
      {"scale", {{"native_dropout_backward", any}}},
      {"beta", {{"smooth_l1_loss", not_negative}, {"smooth_l1_loss_backward", not_negative}}},
      {"delta", {{"huber_loss", positive}, {"huber_loss_backward", positive}}},
      {"diagonal", {{"tril", any}, {"tril_", any}, {"triu", any}, {"triu_", any}}},
  };
  const auto found = kArguments.find(argument);
  if (found == kArguments.end()) return std::nullopt;
  const auto op = found->second.find(name);
  return op == found->second.end() ? std::nullopt : std::optional(op->second);
}

ArgumentKind kind_of(const c10::Type& declared) {
  if (is_tensor(declared)) return ArgumentKind::kTensor;
  if (is_tensor_list(declared)) return ArgumentKind::kTensorList;
  const c10::Type& type = without_optional(declared);
  if (type.kind() == c10::TypeKind::NumberType) return ArgumentKind::kScalar;
  if (type.kind() == c10::TypeKind::GeneratorType) return ArgumentKind::kGenerator;
  if (const auto* list = type.castRaw<c10::ListType>()) {
    if (list->getElementType()->kind() == c10::TypeKind::NumberType) return ArgumentKind::kScalarList;
  }
  return ArgumentKind::kConstant;
}

bool any_return_aliases_unwritten(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    if (result.alias_info() && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

// Returns "add" of aten::add.Tensor, and nothing for ops of other libraries.
std::string_view base_name(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name();
  return starts_with(name, "aten::") ? name.substr(6) : std::string_view();
}

// Returns whether an op must stay a composite although rules 8 and 9 would box it; the list has the reasons.
bool stays_composite(std::string_view base) {
  static const std::unordered_set<std::string_view> kNames = {
      "clone",
      "lift",
      "lift_fresh",  // end in copy_, which shares values
      "convolution_overrideable",
      "convolution_backward_overrideable",  // end in convolution
      "_unsafe_view",
      "repeat",
      "_reshape_copy",  // end in views and copies
      "select_backward",
      "slice_backward",
      "diag_embed",
      "diagonal_backward",
      "diagonal_scatter",  // end in a copy to a view, whose offset is a number: another offset is the same program
      "_coalesced",
      "_is_all_true",
      "_is_any_true",
      "_linalg_check_errors",   // read data
      "_pack_padded_sequence",  // reads the lengths, which are on the CPU
      "_new_zeros_with_same_feature_meta",
      "new_empty_strided",  // factories
      "_to_copy",
      "as_strided_scatter",  // reads memory beside its tensor's elements
  };
  return kNames.contains(base) || starts_with(base, "set_") || starts_with(base, "resize") ||
         starts_with(base, "_functional_") || starts_with(base, "_test") || base.find("sparse") != base.npos ||
         base.find("coalesce") != base.npos;
}

bool takes_device(const c10::FunctionSchema& schema) {
  for (const auto& argument : schema.arguments()) {
    if (without_optional(*argument.type()).kind() == c10::TypeKind::DeviceObjType) return true;
  }
  return false;
}

}  // namespace

Operator::Operator(const c10::OperatorHandle& handle) : op(handle) {
  const auto& schema = handle.schema();
  name = graph::full_name(op);
  returns = schema.returns().size();
  const std::string_view base = base_name(schema);
  bool reads_tensor = false;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto& declared = schema.arguments()[i];
    OperatorArgument argument;
    argument.kind = kind_of(*declared.type());
    const bool says_written = declared.alias_info() && declared.alias_info()->isWrite();
    argument.written = (says_written && !is_written_apart(name, declared.name())) || writes_silently(name, i);
    argument.may_be_on_cpu = argument.kind == ArgumentKind::kTensorList && declared.name() == "indices";
    const bool reads = argument.kind == ArgumentKind::kTensor || argument.kind == ArgumentKind::kTensorList;
    if (reads) reads_tensor |= !argument.written || !declared.is_out();
    indexes |= !argument.written && reads && (declared.name() == "index" || declared.name() == "indices");
    random |= argument.kind == ArgumentKind::kGenerator;
    writes |= argument.written;
    if (declared.name() == "correction") correction = i;
    if (declared.name() == "train" || declared.name() == "training" || declared.name() == "dropout_p") draws_by = i;
    const c10::TypeKind kind = without_optional(*declared.type()).kind();
    if (kind == c10::TypeKind::FloatType || kind == c10::TypeKind::IntType) {
      if (const auto usual = usual_input(base, declared.name())) {
        argument.kind = ArgumentKind::kScalar;
        argument.usual = usual;
      }
    }
    arguments.push_back(argument);
  }
  // masked_fill and index_fill read the value of a CPU tensor; other ops convert it like any tensor.
  const bool fills = starts_with(base, "masked_fill") || starts_with(base, "index_fill");
  for (OperatorArgument& argument : arguments) {
    const bool is_scalar = argument.kind == ArgumentKind::kScalar || argument.kind == ArgumentKind::kScalarList;
    const bool may_be_scalar = argument.kind == ArgumentKind::kTensor && fills && !argument.written;
    argument.fits_result = reads_tensor && ((is_scalar && !argument.usual) || may_be_scalar);
  }
  random |= handle.hasTag(at::Tag::nondeterministic_seeded);
  has_sizes_of_data = handle.hasTag(at::Tag::dynamic_output_shape) || name == "aten::index.Tensor";
  // The composite kernel of these makes in-place calls, each of which counts. Kernels that write themselves
  // (_fused_adam_) don't count.
  counts_lists = writes && returns == 0 && handle.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd);
  may_multiply = reads_tensor && !handle.hasTag(at::Tag::pointwise);
  numbers_are_types = !reads_tensor || refuses_numbers(base);
  writes_one_value = name == "aten::fill_.Scalar" || name == "aten::zero_" || name == "aten::_foreach_zero_" ||
                     name == "aten::threshold_";
}

const Operator& Operator::of(const c10::OperatorHandle& op) {
  static auto* lock = new std::mutex;
  static auto* operators = new std::unordered_map<const c10::FunctionSchema*, std::unique_ptr<Operator>>;
  std::lock_guard guard(*lock);
  auto& slot = (*operators)[&op.schema()];
  if (!slot) slot = std::make_unique<Operator>(op);
  return *slot;
}

Boxing boxing(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  const std::string_view base = base_name(schema);
  if (base.empty()) return Boxing::kDefault;  // custom ops reach the fallback without registration
  if (op.hasKernelForDispatchKey(DispatchKey::PrivateUse1)) return Boxing::kOwn;
  const bool composite_explicit = op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd);
  const bool non_functional = op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional);
  // 0. Implicit composites carry autograd: boxing them would cut it. The backwards of silu and mish are implicit, but
  // are only reached below autograd, and decompose into five nodes. linear has an autograd kernel for this device
  // (linear.cpp), so nothing is cut.
  if (op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) {
    const bool below_autograd = base == "silu_backward" || base == "mish_backward" ||
                                op.hasKernelForDispatchKey(DispatchKey::AutogradPrivateUse1);
    return below_autograd ? Boxing::kRecord : Boxing::kDefault;
  }
  // 1. Views are native view functions, or composites of those.
  if (!schema.is_mutable() && any_return_aliases_unwritten(schema)) return Boxing::kDefault;
  // 2. (a!) is metadata here, not data.
  if (op.hasTag(at::Tag::inplace_view)) return Boxing::kDefault;
  // 3. There is nothing to record.
  bool tensor_result = false;
  bool tensor_argument = false;
  for (const auto& result : schema.returns())
    tensor_result |= is_tensor(*result.type()) || is_tensor_list(*result.type());
  for (const auto& argument : schema.arguments()) {
    const c10::Type& type = *argument.type();
    if (type.kind() == c10::TypeKind::StorageType || type.kind() == c10::TypeKind::StreamObjType)
      return Boxing::kDefault;
    tensor_argument |= is_tensor(type) || is_tensor_list(type);
  }
  if (!tensor_result && !schema.is_mutable()) return Boxing::kDefault;
  // 4. Copies of views. 5. Factories.
  if (op.hasTag(at::Tag::view_copy) || !tensor_argument) return Boxing::kDefault;
  // 6. out= of a composite: the functional op is recorded and copied. Exceptions: mode's out= demands a CPU or CUDA
  // device first, and those of all and any accept dtypes that the CPU's refuse.
  bool has_out = false;
  for (const auto& argument : schema.arguments()) has_out |= argument.is_out();
  if (composite_explicit && has_out && base != "mode" && base != "all" && base != "any") return Boxing::kDefault;
  // 7. Conversions and *_like factories end in empty and copy_.
  if (takes_device(schema)) return Boxing::kDefault;
  // 8. Structured ops would arrive as empty and op.out. 9. Composites would arrive in pieces.
  if (non_functional || composite_explicit) return stays_composite(base) ? Boxing::kDefault : Boxing::kRecord;
  // A. The backend fallback.
  return Boxing::kFallback;
}

}  // namespace tpjrt::device
