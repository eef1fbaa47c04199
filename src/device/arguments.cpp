// Flattening a boxed call. This is the recorder's hot path: words in, no allocation for calls of ordinary size.
#include "device/arguments.h"

#include <ATen/ops/_conj_physical.h>
#include <ATen/ops/neg.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <bit>
#include <cstring>

#include "device/storage.h"

namespace tpjrt::device {
namespace {

using graph::Number;

enum Tag : uint64_t {
  kUndefined = 1,
  kTensorTag,
  kHostNumber,
  kNumberTag,
  kListTag,
  kNone,
  kIntTag,
  kDoubleTag,
  kBoolTag,
  kStringTag,
  kDeviceTag,
  kComplexTag,
};

uint64_t negative(const Number& number) {
  return number.kind == Number::Kind::kInt && number.as_int() < 0 ? uint64_t{1} << 40 : 0;
}

[[noreturn]] void refuse_device(const Operator& op, const at::Tensor& tensor, c10::DeviceIndex device) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, pjrt:",
              static_cast<int>(device < 0 ? 0 : device), " and ", tensor.device(), "! (when checking arguments of ",
              op.name, "; move one with tensor.to(device))");
  std::abort();
}

class Flattener {
 public:
  Flattener(const Operator& op, Arguments& out) : op_(op), out_(out) {}

  void tensor(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      out_.key.push_back(kUndefined);
      return;
    }
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    const c10::Device device = impl->device();
    const auto dtype = static_cast<uint64_t>(c10::typeMetaToScalarType(impl->dtype()));
    if (device.type() != kPjrt) {
      if (device.type() != c10::kCPU || impl->dim() != 0 || impl->layout() != c10::kStrided) {
        refuse_device(op_, tensor, out_.device);
      }
      const Number number = Number::of(tensor.item());
      out_.key.push_back(kHostNumber | dtype << 8 | uint64_t{impl->is_wrapped_number()} << 24 | negative(number));
      out_.numbers.push_back(number);
      return;
    }
    if (out_.device < 0) {
      out_.device = device.index();
    } else if (out_.device != device.index()) {
      refuse_device(op_, tensor, out_.device);
    }
    TORCH_CHECK(impl->layout() == c10::kStrided, "[", op_.name,
                "] the pjrt device holds strided tensors only, got layout ", impl->layout(),
                "; call .to_dense() first");
    const auto sizes = impl->sizes();
    out_.key.push_back(kTensorTag | dtype << 8 | sizes.size() << 16 | uint64_t{impl->is_wrapped_number()} << 24 |
                       static_cast<uint64_t>(device.index()) << 32);
    append(sizes);
    append(impl->strides());
    out_.operands.push_back(&tensor);
  }

  void number(const c10::IValue& value) {
    if (value.isNone()) {
      out_.key.push_back(kNone);
      return;
    }
    const c10::Scalar scalar = value.toScalar();
    if (C10_UNLIKELY(scalar.type() == c10::kUInt64)) {  // above the largest int64: no number of a graph
      out_.recordable = false;
      return;
    }
    const Number number = Number::of(scalar);
    out_.key.push_back(kNumberTag | static_cast<uint64_t>(number.kind) << 8 | negative(number));
    if (op_.numbers_are_types) {
      out_.key.push_back(number.bits);
      out_.key.push_back(std::bit_cast<uint64_t>(number.imaginary));
    }
    out_.numbers.push_back(number);
  }

  void constant(const c10::IValue& value) {
    auto& key = out_.key;
    if (value.isNone()) {
      key.push_back(kNone);
    } else if (value.isInt()) {
      key.push_back(kIntTag);
      key.push_back(static_cast<uint64_t>(value.toInt()));
    } else if (value.isBool()) {
      key.push_back(kBoolTag | uint64_t{value.toBool()} << 8);
    } else if (value.isDouble()) {
      key.push_back(kDoubleTag);
      key.push_back(std::bit_cast<uint64_t>(value.toDouble()));
    } else if (value.isComplexDouble()) {
      key.push_back(kComplexTag);
      key.push_back(std::bit_cast<uint64_t>(value.toComplexDouble().real()));
      key.push_back(std::bit_cast<uint64_t>(value.toComplexDouble().imag()));
    } else if (value.isString()) {
      const std::string& text = value.toStringRef();
      key.push_back(kStringTag | text.size() << 8);
      for (size_t i = 0; i < text.size(); i += 8) {
        uint64_t word = 0;
        std::memcpy(&word, text.data() + i, std::min<size_t>(8, text.size() - i));
        key.push_back(word);
      }
    } else if (value.isDevice()) {
      key.push_back(kDeviceTag | static_cast<uint64_t>(value.toDevice().type()) << 8 |
                    static_cast<uint64_t>(static_cast<uint8_t>(value.toDevice().index())) << 16);
    } else if (value.isList()) {
      list(value);
      for (const c10::IValue& element : value.toListRef()) constant(element);
    } else {
      out_.recordable = false;
    }
  }

  void list(const c10::IValue& value) { out_.key.push_back(kListTag | value.toListRef().size() << 8); }

 private:
  void append(c10::IntArrayRef words) {
    out_.key.append(reinterpret_cast<const uint64_t*>(words.begin()), reinterpret_cast<const uint64_t*>(words.end()));
  }

  const Operator& op_;
  Arguments& out_;
};

bool needs_resolving(const c10::IValue& value) {
  if (!value.isTensor()) return false;
  const at::Tensor& tensor = value.toTensor();
  return tensor.defined() && (tensor.is_conj() || tensor.is_neg());
}

// The values a conjugate or negative view shows, as a tensor without those bits.
at::Tensor resolved(const at::Tensor& tensor) {
  if (tensor.is_conj()) return resolved(at::_conj_physical(tensor.conj()));
  if (tensor.is_neg()) return at::neg(tensor._neg_view());
  return tensor;
}

void resolve(const Operator& op, const OperatorArgument& argument, c10::IValue& value) {
  const auto refuse_written = [&] {
    TORCH_CHECK(!argument.written, "[", op.name,
                "] can't write to a conjugate or negative view; call .resolve_conj() or "
                ".resolve_neg() and write to the result");
  };
  if (argument.kind == ArgumentKind::kTensor) {
    if (!needs_resolving(value)) return;
    refuse_written();
    value = resolved(value.toTensor());
    return;
  }
  if (!value.isList()) return;
  bool any = false;
  for (const c10::IValue& element : value.toListRef()) {
    any |= needs_resolving(element);
    any |= argument.may_be_on_cpu && element.isTensor() && element.toTensor().defined() && !is_pjrt(element.toTensor());
  }
  if (!any) return;
  refuse_written();
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

uint64_t Arguments::hash() const {
  uint64_t h = key.size();
  for (const uint64_t word : key) {
    h = (h ^ word) * 0x9E3779B97F4A7C15ULL;
    h ^= h >> 29;
  }
  return h;
}

void Arguments::add_numbers_to_key() {
  for (const Number& number : numbers) {
    key.push_back(number.bits);
    key.push_back(std::bit_cast<uint64_t>(number.imaginary));
  }
}

void flatten(const Operator& op, c10::IValue* values, Arguments& out) {
  out.key.push_back(reinterpret_cast<uint64_t>(&op));
  out.key.push_back(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  Flattener flattener(op, out);
  for (size_t i = 0; i < op.arguments.size(); ++i) {
    c10::IValue& value = values[i];
    switch (op.arguments[i].kind) {
      case ArgumentKind::kTensor:
        if (value.isNone()) {
          out.key.push_back(kUndefined);
        } else {
          if (C10_UNLIKELY(needs_resolving(value))) resolve(op, op.arguments[i], value);
          flattener.tensor(value.toTensor());
        }
        break;
      case ArgumentKind::kTensorList:
        if (value.isNone()) {
          out.key.push_back(kNone);
          break;
        }
        resolve(op, op.arguments[i], value);
        flattener.list(value);
        for (const c10::IValue& element : value.toListRef()) {
          if (element.isNone()) {
            out.key.push_back(kUndefined);
          } else {
            flattener.tensor(element.toTensor());
          }
        }
        break;
      case ArgumentKind::kNumber: flattener.number(value); break;
      case ArgumentKind::kNumberList:
        if (value.isNone()) {
          out.key.push_back(kNone);
          break;
        }
        flattener.list(value);
        for (const c10::IValue& element : value.toListRef()) flattener.number(element);
        break;
      case ArgumentKind::kGenerator: break;
      case ArgumentKind::kConstant: flattener.constant(value); break;
    }
  }
}

}  // namespace tpjrt::device
