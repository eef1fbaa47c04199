// Optimizers with fused=True: a step is one node, whatever the number of parameters (python/torch_pjrt/decompositions/
// optimizers.py says what it computes). Their learning rate is a float in the schema, and floats belong to a program; as a
// tensor it is an input, so that a schedule compiles nothing.
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include "device/meta.h"
#include "device/operator.h"
#include "device/recorder.h"

namespace tpjrt::device {
namespace {

size_t argument(const c10::FunctionSchema& schema, const char* name) {
  return static_cast<size_t>(schema.argumentIndexWithName(name).value());
}

at::Tensor on_device(const c10::IValue& lr, c10::Device device) {
  if (lr.isTensor() && !lr.toTensor().is_cpu()) return lr.toTensor();
  const double value = lr.isTensor() ? lr.toTensor().item().toDouble() : lr.toDouble();
  return at::full({}, value, at::TensorOptions(device).dtype(c10::kDouble));
}

std::vector<at::Tensor> on_device(const std::vector<at::Tensor>& steps, c10::Device device) {
  std::vector<at::Tensor> there;
  for (const at::Tensor& step : steps) there.push_back(step.to(device));
  return there;
}

// Gradients lose their scale for whoever reads them after the step, too, unless there was no step.
void unscale(at::TensorList grads, const at::Tensor& scale, const c10::IValue& found_inf) {
  std::vector<at::Tensor> unscaled = at::_foreach_div(grads, scale);
  if (!found_inf.isNone()) {
    const at::Tensor skipped = found_inf.toTensor().eq(1);
    for (size_t i = 0; i < grads.size(); ++i) unscaled[i] = at::where(skipped, grads[i], unscaled[i]);
  }
  at::_foreach_copy_(grads, unscaled);
}

void step(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const auto with_tensor = c10::Dispatcher::singleton().findSchemaOrThrow(handle.schema().name().c_str(), "tensor_lr");
  if (outlining()) return record(Operator::of(with_tensor), *stack);
  const c10::FunctionSchema& schema = with_tensor.schema();
  const auto at = [&](const char* name) -> c10::IValue& {
    return (*stack)[stack->size() - schema.arguments().size() + argument(schema, name)];
  };
  const std::vector<at::Tensor> params = at("self").toTensorVector(), grads = at("grads").toTensorVector();
  for (const char* name : {"grad_scale", "found_inf"}) {  // one element, whatever the shape
    if (!at(name).isNone()) at(name) = at(name).toTensor().reshape({});
  }
  const c10::IValue scale = at("grad_scale"), found_inf = at("found_inf");
  if (params.empty()) return torch::jit::drop(*stack, schema.arguments().size());
  at("lr") = on_device(at("lr"), params[0].device());
  if (schema.argumentIndexWithName("state_steps")) {
    at("state_steps") = on_device(at("state_steps").toTensorVector(), params[0].device());
  }
  record(Operator::of(with_tensor), *stack);
  if (!scale.isNone()) unscale(grads, scale.toTensor(), found_inf);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"}) {
    for (const char* overload : {"", ".tensor_lr"}) {
      m.impl((std::string(name) + overload).c_str(), torch::CppFunction::makeFromBoxedFunction<&step>());
    }
  }
}

}  // namespace
}  // namespace tpjrt::device
