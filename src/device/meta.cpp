// Calling Meta kernels from below every other dispatch key.
#include "device/meta.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tpjrt::device {

struct BelowEverything::State {
  c10::impl::ExcludeDispatchKeyGuard above{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchVmapMode,
                           c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                           c10::DispatchKey::FuncTorchDynamicLayerBackMode, c10::DispatchKey::Functionalize,
                           c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                           c10::DispatchKey::PythonDispatcher})};
  at::impl::TorchFunctionDisabledState torch_function = at::impl::PythonTorchFunctionTLS::get_disabled_state();
};

BelowEverything::BelowEverything() : state_(new State) {
  // A user's torch function mode (torch.device("pjrt") as a context, say) must not see the kernels' own calls.
  at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
}

BelowEverything::~BelowEverything() {
  at::impl::PythonTorchFunctionTLS::set_disabled_state(state_->torch_function);
  delete state_;
}

torch::jit::Stack make_stack(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers,
                             const std::function<at::Tensor(uint32_t operand)>& tensor) {
  using graph::Parameter;
  using Entry = Parameter::Entry;
  const auto entry_tensor = [&](const Entry& entry) -> at::Tensor {
    switch (entry.source) {
      case Entry::Source::kUndefined: return {};
      case Entry::Source::kOperand: return tensor(entry.index);
      case Entry::Source::kNumber: break;
    }
    at::Tensor number =
        at::scalar_tensor(numbers[entry.index].scalar(), at::TensorOptions(c10::kCPU).dtype(entry.type->dtype));
    if (entry.wrapped_number) number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return number;
  };
  const auto& declared = signature.op->schema().arguments();
  torch::jit::Stack stack;
  for (size_t i = 0; i < signature.parameters.size(); ++i) {
    const Parameter& parameter = signature.parameters[i];
    switch (parameter.kind) {
      case Parameter::Kind::kConstant: stack.push_back(parameter.constant); break;
      case Parameter::Kind::kTensor: {
        const Entry& entry = parameter.entries.at(0);
        const bool none =
            entry.source == Entry::Source::kUndefined && declared[i].type()->kind() == c10::TypeKind::OptionalType;
        stack.push_back(none ? c10::IValue() : c10::IValue(entry_tensor(entry)));
        break;
      }
      case Parameter::Kind::kTensorList: {
        c10::TypePtr type = declared[i].type();
        if (const auto* optional = type->castRaw<c10::OptionalType>()) type = optional->getElementType();
        const c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
        const bool optional = element->kind() == c10::TypeKind::OptionalType;
        c10::impl::GenericList list(element);
        for (const Entry& entry : parameter.entries) {
          if (entry.source == Entry::Source::kUndefined && optional) {
            list.push_back(c10::IValue());
          } else {
            list.push_back(entry_tensor(entry));
          }
        }
        stack.emplace_back(std::move(list));
        break;
      }
      case Parameter::Kind::kNumber: stack.emplace_back(numbers[parameter.first].scalar()); break;
      case Parameter::Kind::kNumberList: {
        c10::impl::GenericList list(c10::NumberType::get());
        for (uint32_t k = 0; k < parameter.count; ++k) list.push_back(numbers[parameter.first + k].scalar());
        stack.emplace_back(std::move(list));
        break;
      }
    }
  }
  return stack;
}

at::Tensor meta_tensor(graph::TypePtr type, bool wrapped_number) {
  at::Tensor tensor = at::empty_strided(type->sizes, type->strides, at::TensorOptions(c10::kMeta).dtype(type->dtype));
  if (wrapped_number) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

void run_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  BelowEverything guard;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
}

}  // namespace tpjrt::device
