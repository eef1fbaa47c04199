// Calls PyTorch's functions under the CPU's keys from this project's kernels of sparse tensors.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace tpjrt::device {

// Runs the call on the host, where the CPU's kernel runs it or reports what is wrong with it. Counted, and an error
// in strict mode, as in host/host.h.
void run_sparse_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Runs an unboxed call on the host and returns its results. `name` and `overload` as in the schema: "aten::addmm",
// "out".
template <class... Arguments>
torch::jit::Stack stack_on_host(const char* name, const char* overload, Arguments&&... arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  torch::jit::Stack stack;
  torch::jit::push(stack, std::forward<Arguments>(arguments)...);
  run_sparse_on_host(op, &stack);
  return stack;
}

// Runs a call that returns one value.
template <class Result, class... Arguments>
Result on_host(const char* name, const char* overload, Arguments&&... arguments) {
  return stack_on_host(name, overload, std::forward<Arguments>(arguments)...).at(0).template to<Result>();
}

// Runs a call that returns two tensors.
template <class... Arguments>
std::tuple<at::Tensor, at::Tensor> on_host_both(const char* name, Arguments&&... arguments) {
  const torch::jit::Stack stack = stack_on_host(name, "", std::forward<Arguments>(arguments)...);
  return {stack.at(0).toTensor(), stack.at(1).toTensor()};
}

// Runs PyTorch's kernel for the CPU's key on the device's tensors: only for ops, or cases, in which it reads no
// memory (Note [Sparse kernels]).
template <class Result, class... Arguments>
Result shared_kernel(c10::DispatchKey key, const char* name, const char* overload, Arguments&&... arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  torch::jit::Stack stack;
  torch::jit::push(stack, std::forward<Arguments>(arguments)...);
  op.callBoxedForDispatchKey(key, stack);
  return stack.at(0).to<Result>();
}

}  // namespace tpjrt::device
