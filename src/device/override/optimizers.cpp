// Optimizers: zeros that become their state, and steps with fused=True.
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include "device/aten_call/operator.h"
#include "device/record/recorder.h"
#include "device/services/engine.h"
#include "device/services/modes.h"
#include "device/start/optimizer_step.h"
#include "device/tensor/access.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

// Zeros that an optimizer makes in its first step become data immediately. Otherwise that step would have another graph
// than all following ones, and half of the time until a training runs would go to a program that runs once.

// Returns whether the memory was not written before the step and is all the tensor's. Within the step,
// torch.use_deterministic_algorithms fills empty memory.
bool is_new(const at::Tensor& tensor) {
  LazyStorage* storage = storage_of(tensor);
  std::lock_guard lock(graph::graph_lock());
  const graph::Value& value = storage->slot.value();
  return (!value || in_optimizer_step(*value.node)) && tensor.is_non_overlapping_and_dense() &&
         tensor.nbytes() == storage->nbytes();
}

void zero(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const at::Tensor& self = stack->back().toTensor();
  if (!makes_optimizer_state() || outlining() || tracing() || !is_pjrt(self) || !is_new(self)) {
    return record(Operator::of(handle), *stack);
  }
  const auto options = at::TensorOptions(c10::kCPU).dtype(self.dtype());
  const at::Tensor zeros = at::empty_strided(self.sizes(), self.strides(), options).zero_();
  graph::Value leaf = engine().upload(zeros, self.device().index(), /*owned=*/true);
  std::lock_guard lock(graph::graph_lock());
  write(self, std::move(leaf));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("zero_", torch::CppFunction::makeFromBoxedFunction<&zero>()); }

// Optimizers with fused=True: a step is one node, whatever the number of parameters. Their hyperparameters are floats
// in PyTorch's schemas, and floats belong to a program. Therefore an operator of this project is recorded instead
// (python/torch_pjrt/decompositions/optimizers.py), which takes them as tensors, so that a schedule compiles nothing.

at::Tensor on_device(const c10::IValue& value, c10::Device device) {
  if (value.isTensor() && !value.toTensor().is_cpu()) return value.toTensor();
  const double number = value.isTensor() ? value.toTensor().item().toDouble() : value.toDouble();
  return at::full({}, number, at::TensorOptions(device).dtype(c10::kDouble));
}

std::vector<at::Tensor> on_device(const std::vector<at::Tensor>& steps, c10::Device device) {
  std::vector<at::Tensor> there;
  for (const at::Tensor& step : steps) there.push_back(step.to(device));
  return there;
}

// Removes the gradients' scale, also for readers after the step, unless the step was skipped.
void unscale(at::TensorList grads, const at::Tensor& scale, const c10::IValue& found_inf) {
  std::vector<at::Tensor> unscaled = at::_foreach_div(grads, scale);
  if (!found_inf.isNone()) {
    const at::Tensor skipped = found_inf.toTensor().reshape({}).eq(1);
    for (size_t i = 0; i < grads.size(); ++i) unscaled[i] = at::where(skipped, grads[i], unscaled[i]);
  }
  at::_foreach_copy_(grads, unscaled);
}

// The arguments of the call, by name.
class Given {
 public:
  Given(const c10::FunctionSchema& schema, const torch::jit::Stack& stack)
      : schema_(schema), first_(&stack[stack.size() - schema.arguments().size()]) {}
  const c10::IValue& operator[](const std::string& name) const {
    return first_[static_cast<size_t>(schema_.argumentIndexWithName(name).value())];
  }

 private:
  const c10::FunctionSchema& schema_;
  const c10::IValue* first_;
};

// Returns one argument of the operator that is recorded.
c10::IValue recorded(const c10::Argument& wanted, const Given& given, c10::Device device) {
  const std::string& name = wanted.name();
  if (name == "decays") return given["weight_decay"].toDouble() != 0;
  const c10::IValue& value = given[name];
  if (name == "state_steps") return on_device(value.toTensorVector(), device);
  if (wanted.type()->kind() == c10::TypeKind::TensorType) return on_device(value, device);  // a hyperparameter
  if (value.isTensor()) return value.toTensor().reshape({});  // of the scale: one element of any shape
  return value;
}

// Returns whether a step needs a list beside the parameters. The CPU's kernels ignore other lists.
bool needs(const Given& given, const std::string& list) {
  if (list == "max_exp_avg_sqs") return given["amsgrad"].toBool();
  if (list == "momentum_buffer_list") return given["momentum"].toDouble() != 0;
  return true;
}

// `step` is the call's name without its underscores: fused_adam.
void check_dtypes(const std::string& step, const std::vector<at::Tensor>& params) {
  for (const at::Tensor& one : params) {
    TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(one.scalar_type()) && !c10::isFloat8Type(one.scalar_type()), '"',
                                step, "_kernel\" not implemented for '", one.scalar_type(), "'");
  }
}

// Checks that every list has one tensor for each parameter, of its sizes and dtype. The recorded operator relies on
// it.
void check_lists(const c10::FunctionSchema& schema, const Given& given, const std::vector<at::Tensor>& params) {
  for (const c10::Argument& argument : schema.arguments()) {
    const std::string& name = argument.name();
    if (!given[name].isTensorList() || !needs(given, name)) continue;
    const c10::List<at::Tensor> list = given[name].toTensorList();
    TORCH_CHECK(list.size() == params.size(), "Expected ", name, ".size() == n_tensors to be true, but got false.");
    for (size_t i = 0; i < params.size(); ++i) {
      const at::Tensor one = list[i];
      if (name == "state_steps") {
        TORCH_CHECK(one.numel() == 1, "a Tensor with ", one.numel(), " elements cannot be converted to Scalar");
      } else {
        TORCH_CHECK(one.sizes() == params[i].sizes(), "Expected ", name, "[", i,
                    "] to have the sizes of its parameter, ", params[i].sizes(), ", but got ", one.sizes());
        TORCH_CHECK(one.scalar_type() == params[i].scalar_type(), "expected scalar type ", params[i].scalar_type(),
                    " but found ", one.scalar_type(), " in ", name, "[", i, "]");
      }
    }
  }
}

void step(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  if (outlining()) return record(Operator::of(handle), *stack);
  const std::string name = handle.schema().name().substr(sizeof("aten::_") - 1);
  const auto own = c10::Dispatcher::singleton().findSchemaOrThrow(("torch_pjrt::" + name).c_str(), "");
  const size_t count = handle.schema().arguments().size();
  const Given given(handle.schema(), *stack);
  const std::vector<at::Tensor> params = given["self"].toTensorVector(), grads = given["grads"].toTensorVector();
  const c10::IValue scale = given["grad_scale"], found_inf = given["found_inf"];
  check_dtypes(name.substr(0, name.size() - 1), params);
  check_lists(handle.schema(), given, params);
  if (params.empty()) return torch::jit::drop(*stack, count);
  torch::jit::Stack call;
  for (const c10::Argument& wanted : own.schema().arguments()) {
    call.push_back(recorded(wanted, given, params[0].device()));
  }
  record(Operator::of(own), call);
  torch::jit::drop(*stack, count);
  if (!scale.isNone()) unscale(grads, scale.toTensor().reshape({}), found_inf);
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
