// Makes and reads stacks.
#include "device/aten_call/stack.h"

#include <ATen/ScalarOps.h>
#include <ATen/ops/scalar_tensor.h>

#include <optional>
#include <utility>

namespace tpjrt::device {

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
