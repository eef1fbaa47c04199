// Flattens a call. This is the recorder's hot path: it writes words, and allocates nothing for calls of ordinary
// size.
//
// Makes and reads stacks.
#include "device/aten_call/arguments.h"

#include <ATen/Context.h>
#include <ATen/ScalarOps.h>
#include <ATen/ops/_conj_physical.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

using graph::ScalarValue;

enum Tag : uint64_t {
  kUndefined = 1,
  kTensorTag,
  kHostScalar,
  kScalarTag,
  kListTag,
  kNone,
  kIntTag,
  kDoubleTag,
  kBoolTag,
  kStringTag,
  kDeviceTag,
  kComplexTag,
};

// One word holds the state that affects a call without being an argument: the default dtype, two precisions, and an
// address, which has 48 bits.
constexpr int kDtypeBits = 8, kPrecisionBits = 4;

uint64_t negative(const ScalarValue& number) {
  return number.kind == ScalarValue::Kind::kInt && number.as_int() < 0 ? uint64_t{1} << 40 : 0;
}

[[noreturn]] void refuse_device(const Operator& op, const at::Tensor& tensor, c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 || op.name != "aten::index.Tensor",  // the indexed tensor comes first
              "indices should be either on cpu or on the same device as the indexed tensor (", tensor.device(), ")");
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, pjrt:",
              static_cast<int>(device < 0 ? 0 : device), " and ", tensor.device(), "! (when checking arguments of ",
              op.name, "; move one with tensor.to(device))");
  std::abort();
}

bool needs_resolving(const c10::IValue& value) {
  if (!value.isTensor()) return false;
  const at::Tensor& tensor = value.toTensor();
  return tensor.defined() && (tensor.is_conj() || tensor.is_neg());
}

// Returns the values of a conjugate or negative view as a tensor without those bits.
at::Tensor resolved(const at::Tensor& tensor) {
  if (tensor.is_conj()) return resolved(at::_conj_physical(tensor.conj()));
  if (tensor.is_neg()) return at::neg(tensor._neg_view());
  return tensor;
}

void resolve(const OperatorArgument& argument, c10::IValue& value) {
  if (argument.kind == ArgumentKind::kTensor) {
    if (needs_resolving(value)) value = resolved(value.toTensor());
    return;
  }
  if (!value.isList()) return;
  bool any = false;
  for (const c10::IValue& element : value.toListRef()) {
    any |= needs_resolving(element);
    any |= argument.may_be_on_cpu && element.isTensor() && element.toTensor().defined() && !is_pjrt(element.toTensor());
  }
  if (!any) return;
  c10::impl::GenericList copy(value.toList().elementType());
  c10::Device device(kPjrt, -1);
  for (const c10::IValue& element : value.toListRef()) {
    if (!element.isTensor() || !element.toTensor().defined()) {
      copy.push_back(element);
      continue;
    }
    at::Tensor tensor = resolved(element.toTensor());
    if (argument.may_be_on_cpu && tensor.device().is_cpu()) tensor = tensor.to(device);
    copy.push_back(tensor);
  }
  value = copy;
}

}  // namespace

// See PyTorch's "TensorFloat-32" note: torch.set_float32_matmul_precision, torch.backends.cuda.matmul and
// torch.backends.cudnn. The settings are looked up here because C++ may change them, too.
graph::Precisions asked_precisions(graph::PrecisionSettings settings) {
  using enum graph::Precision;
  const auto asked = [](at::Float32Backend backend, at::Float32Op op) {
    return at::globalContext().float32Precision(backend, op);
  };
  graph::Precisions precisions;
  if (asked(at::Float32Backend::CUDA, at::Float32Op::MATMUL) == at::Float32Precision::TF32) {
    const bool is_medium = asked(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL) == at::Float32Precision::BF16;
    precisions.products = is_medium ? kDefault : kHigh;
  }
  const bool is_cuda = settings == graph::PrecisionSettings::kCuda;
  const bool has_tf32 = is_cuda && asked(at::Float32Backend::CUDA, at::Float32Op::CONV) == at::Float32Precision::TF32;
  precisions.convolutions = is_cuda ? (has_tf32 ? kHigh : kHighest) : precisions.products;
  return precisions;
}

uint64_t Arguments::hash() const {
  uint64_t h = key.size();
  for (const uint64_t word : key) {
    h = (h ^ word) * 0x9E3779B97F4A7C15ULL;
    h ^= h >> 29;
  }
  return h;
}

graph::CompositesPtr Arguments::composites() const {
  return reinterpret_cast<graph::CompositesPtr>(key[1] >> (kDtypeBits + kPrecisionBits));
}

graph::Precisions Arguments::precisions() const {
  return {static_cast<graph::Precision>(key[1] >> kDtypeBits & 3),
          static_cast<graph::Precision>(key[1] >> (kDtypeBits + 2) & 3)};
}

void Arguments::add_numbers_to_key() {
  by_value = true;
  for (const ScalarValue& number : scalars) {
    key.push_back(number.bits);
    key.push_back(std::bit_cast<uint64_t>(number.imaginary));
  }
}

Flattener::Flattener(const Operator& op, Arguments& out) : op_(op), out_(out) {
  out_.key.push_back(reinterpret_cast<uint64_t>(&op));
  const auto asked = reinterpret_cast<uint64_t>(graph::asked_composites().load(std::memory_order_relaxed));
  uint64_t word = asked << (kDtypeBits + kPrecisionBits);
  const auto settings = graph::precision_settings().load(std::memory_order_relaxed);
  if (C10_UNLIKELY(settings != graph::PrecisionSettings::kNone) && op.may_multiply) {
    const graph::Precisions precisions = asked_precisions(settings);
    word |= (static_cast<uint64_t>(precisions.products) | static_cast<uint64_t>(precisions.convolutions) << 2)
            << kDtypeBits;
  }
  out_.key.push_back(word | static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
}

void Flattener::append(const at::Tensor& tensor, bool written) {
  auto& key = out_.key;
  if (!tensor.defined()) {
    key.push_back(kUndefined);
    return;
  }
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  odd_ |= !boxed_ && (impl->is_conj() || impl->is_neg());
  const c10::Device device = impl->device();
  const auto dtype = static_cast<uint64_t>(c10::typeMetaToScalarType(impl->dtype()));
  if (C10_UNLIKELY(device.type() != kPjrt)) {
    const bool is_number = device.type() == c10::kCPU && impl->dim() == 0 && impl->layout() == c10::kStrided;
    if (!is_number || written) {
      refuse_device(op_, tensor, out_.device);
    }
    const ScalarValue number = ScalarValue::of(tensor.item());
    key.push_back(kHostScalar | dtype << 8 | uint64_t{impl->is_wrapped_number()} << 24 | negative(number));
    out_.scalars.push_back(number);
    return;
  }
  if (out_.device < 0) {
    out_.device = device.index();
  } else if (out_.device != device.index()) {
    refuse_device(op_, tensor, out_.device);
  }
  TORCH_CHECK(impl->layout() == c10::kStrided, "[", op_.name,
              "] the pjrt device holds strided tensors only, got layout ", impl->layout(), "; call .to_dense() first");
  const auto sizes = impl->sizes();
  const auto strides = impl->strides();
  const size_t start = key.size(), rank = sizes.size();
  key.resize_for_overwrite(start + 1 + 2 * rank);
  uint64_t* words = key.data() + start;
  *words++ = kTensorTag | dtype << 8 | rank << 16 | uint64_t{impl->is_wrapped_number()} << 24 |
             static_cast<uint64_t>(device.index()) << 32;
  for (size_t i = 0; i < rank; ++i) *words++ = static_cast<uint64_t>(sizes[i]);
  for (size_t i = 0; i < rank; ++i) *words++ = static_cast<uint64_t>(strides[i]);
  out_.operands.push_back(&tensor);
}

void Flattener::append(const c10::Scalar& scalar) {
  if (C10_UNLIKELY(scalar.type() == c10::kUInt64)) {  // above the largest int64: not a number of a graph
    out_.recordable = false;
    return;
  }
  const ScalarValue number = ScalarValue::of(scalar);
  out_.key.push_back(kScalarTag | static_cast<uint64_t>(number.kind) << 8 | negative(number));
  if (op_.numbers_are_types) {
    out_.key.push_back(number.bits);
    out_.key.push_back(std::bit_cast<uint64_t>(number.imaginary));
  }
  out_.scalars.push_back(number);
}

bool Flattener::is_usual(double value) {
  if (C10_LIKELY(!op_.arguments[next_].usual)) return true;
  const Usual& usual = *op_.arguments[next_].usual;
  const double above = value - std::exchange(last_, value);
  if (!(usual.least <= value && value <= usual.most)) return false;
  if (usual.above_last && !(*usual.above_last <= above && above <= 2 * usual.most)) return false;
  if (!usual.wide) return true;
  const at::Tensor& first = *out_.operands.front();
  return first.element_size() >= 4 && c10::isSignedType(first.scalar_type());
}

void Flattener::append_none() { out_.key.push_back(kNone); }
void Flattener::begin_list(size_t size) { out_.key.push_back(kListTag | size << 8); }

void Flattener::append(int64_t value) {
  const ArgumentKind kind = op_.arguments[next_].kind;
  if (kind == ArgumentKind::kScalar || kind == ArgumentKind::kScalarList) {
    if (C10_LIKELY(is_usual(static_cast<double>(value)))) return append(c10::Scalar(value));
    out_.unusual.push_back(static_cast<uint32_t>(next_));
  }
  out_.key.push_back(kIntTag);
  out_.key.push_back(static_cast<uint64_t>(value));
}

void Flattener::append(bool value) { out_.key.push_back(kBoolTag | uint64_t{value} << 8); }

void Flattener::append(double value) {
  const OperatorArgument& argument = op_.arguments[next_];
  if (argument.kind != ArgumentKind::kConstant) {
    if (C10_LIKELY(is_usual(value))) return append(c10::Scalar(value));
    out_.unusual.push_back(static_cast<uint32_t>(next_));
  }
  out_.key.push_back(kDoubleTag);
  out_.key.push_back(std::bit_cast<uint64_t>(value));
}

void Flattener::append(std::string_view text) {
  out_.key.push_back(kStringTag | text.size() << 8);
  for (size_t i = 0; i < text.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
    out_.key.push_back(word);
  }
}

void Flattener::append_constant(const c10::IValue& value) {
  auto& key = out_.key;
  if (value.isNone()) {
    append_none();
  } else if (value.isInt()) {
    append(value.toInt());
  } else if (value.isBool()) {
    append(value.toBool());
  } else if (value.isDouble()) {
    append(value.toDouble());
  } else if (value.isComplexDouble()) {
    key.push_back(kComplexTag);
    key.push_back(std::bit_cast<uint64_t>(value.toComplexDouble().real()));
    key.push_back(std::bit_cast<uint64_t>(value.toComplexDouble().imag()));
  } else if (value.isString()) {
    append(std::string_view(value.toStringRef()));
  } else if (value.isDevice()) {
    key.push_back(kDeviceTag | static_cast<uint64_t>(value.toDevice().type()) << 8 |
                  static_cast<uint64_t>(static_cast<uint8_t>(value.toDevice().index())) << 16);
  } else if (value.isList()) {
    begin_list(value.toListRef().size());
    for (const c10::IValue& element : value.toListRef()) append_constant(element);
  } else {
    out_.recordable = false;
  }
}

void Flattener::add(c10::IValue& value) {
  boxed_ = true;
  const OperatorArgument& argument = op_.arguments[next_];
  const auto number = [&](const c10::IValue& element) {
    if (element.isNone()) return append_none();
    if (element.isDouble()) return append(element.toDouble());
    element.isInt() ? append(element.toInt()) : append(element.toScalar());
  };
  switch (argument.kind) {
    case ArgumentKind::kTensor:
      if (value.isNone()) {
        append(undefined_, argument.written);
        break;
      }
      if (C10_UNLIKELY(needs_resolving(value))) resolve(argument, value);
      add(value.toTensor());
      return;
    case ArgumentKind::kTensorList:
      if (value.isNone()) {
        append_none();
        break;
      }
      resolve(argument, value);
      begin_list(value.toListRef().size());
      for (const c10::IValue& element : value.toListRef()) {
        append_element(element.isNone() ? undefined_ : element.toTensor());
      }
      break;
    case ArgumentKind::kScalar: number(value); break;
    case ArgumentKind::kScalarList:
      if (value.isNone()) {
        append_none();
        break;
      }
      begin_list(value.toListRef().size());
      for (const c10::IValue& element : value.toListRef()) number(element);
      break;
    case ArgumentKind::kGenerator:
      if (!value.isNone()) out_.generator = value.toGenerator();
      break;
    case ArgumentKind::kConstant: append_constant(value); break;
  }
  ++next_;
}

void flatten(const Operator& op, c10::IValue* values, Arguments& out) {
  Flattener flattener(op, out);
  for (size_t i = 0; i < op.arguments.size(); ++i) flattener.add(values[i]);
}

using graph::Parameter;
using Entry = Parameter::Entry;

at::Tensor host_scalar(const Entry& entry, c10::ArrayRef<graph::ScalarValue> scalars) {
  const c10::ScalarType dtype = entry.type->dtype;
  const c10::Scalar value = scalars[entry.index].scalar();
  const bool usual = dtype == c10::kBool || c10::isReducedFloatingType(dtype) || c10::isComplexType(dtype) ||
                     dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kLong || dtype == c10::kInt;
  // Bypasses the dispatcher, which takes longer than the number.
  if (usual && !c10::isFloat8Type(dtype)) return at::detail::scalar_tensor_static(value, dtype, c10::kCPU);
  return at::scalar_tensor(value, at::TensorOptions(c10::kCPU).dtype(dtype));
}

StackTemplate::StackTemplate(const graph::Signature& signature, std::optional<c10::Device> device) {
  const auto& declared = signature.op->schema().arguments();
  for (size_t i = 0; i < signature.parameters.size(); ++i) {
    const Parameter& parameter = signature.parameters[i];
    Argument argument{&parameter, {}, {}};
    switch (parameter.kind) {
      case Parameter::Kind::kConstant:
        argument.constant = device && parameter.constant.isDevice() ? c10::IValue(*device) : parameter.constant;
        break;
      case Parameter::Kind::kTensor:
        argument.may_be_none = declared[i].type()->kind() == c10::TypeKind::OptionalType;
        break;
      case Parameter::Kind::kTensorList: {
        c10::TypePtr type = declared[i].type();
        if (const auto* optional = type->castRaw<c10::OptionalType>()) type = optional->getElementType();
        argument.element = type->expectRef<c10::ListType>().getElementType();
        argument.may_be_none = argument.element->kind() == c10::TypeKind::OptionalType;
        break;
      }
      case Parameter::Kind::kScalar: break;
      case Parameter::Kind::kScalarList: argument.element = c10::NumberType::get(); break;
    }
    arguments_.push_back(std::move(argument));
  }
}

void StackTemplate::push(torch::jit::Stack& stack, c10::ArrayRef<graph::ScalarValue> scalars, OfOperand tensor) const {
  push(stack, scalars, tensor, [&](const Entry& entry) { return host_scalar(entry, scalars); });
}

void StackTemplate::push(torch::jit::Stack& stack, c10::ArrayRef<graph::ScalarValue> scalars, OfOperand tensor,
                         OfScalar number) const {
  const auto entry_tensor = [&](const Entry& entry, bool may_be_none) -> c10::IValue {
    switch (entry.source) {
      case Entry::Source::kUndefined: return may_be_none ? c10::IValue() : c10::IValue(at::Tensor());
      case Entry::Source::kOperand: return tensor(entry.index);
      case Entry::Source::kScalar: break;
    }
    at::Tensor value = number(entry);
    if (entry.wrapped_number) value.unsafeGetTensorImpl()->set_wrapped_number(true);
    return value;
  };
  for (const Argument& argument : arguments_) {
    const Parameter& parameter = *argument.parameter;
    switch (parameter.kind) {
      case Parameter::Kind::kConstant: stack.push_back(argument.constant); break;
      case Parameter::Kind::kTensor:
        stack.push_back(entry_tensor(parameter.entries.at(0), argument.may_be_none));
        break;
      case Parameter::Kind::kTensorList: {
        c10::impl::GenericList list(argument.element);
        list.reserve(parameter.entries.size());
        for (const Entry& entry : parameter.entries) list.push_back(entry_tensor(entry, argument.may_be_none));
        stack.emplace_back(std::move(list));
        break;
      }
      case Parameter::Kind::kScalar: stack.emplace_back(scalars[parameter.first].scalar()); break;
      case Parameter::Kind::kScalarList: {
        c10::impl::GenericList list(argument.element);
        list.reserve(parameter.count);
        for (uint32_t k = 0; k < parameter.count; ++k) list.push_back(scalars[parameter.first + k].scalar());
        stack.emplace_back(std::move(list));
        break;
      }
    }
  }
}

torch::jit::Stack make_stack(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars,
                             const std::function<at::Tensor(uint32_t operand)>& tensor) {
  torch::jit::Stack stack;
  StackTemplate(signature).push(stack, scalars, tensor);
  return stack;
}

std::vector<at::Tensor> tensors_of(const torch::jit::Stack& returned) {
  torch::jit::Stack copied = returned;
  std::vector<at::Tensor> tensors;
  take_tensors(copied, tensors);
  return tensors;
}

void take_tensors(torch::jit::Stack& returned, std::vector<at::Tensor>& tensors) {
  for (c10::IValue& value : returned) {
    if (value.isTensor()) {
      tensors.push_back(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      for (at::Tensor& tensor : value.toTensorVector()) tensors.push_back(std::move(tensor));
    } else if (value.isNone()) {
      tensors.emplace_back();
    }
  }
  returned.clear();
}

}  // namespace tpjrt::device
