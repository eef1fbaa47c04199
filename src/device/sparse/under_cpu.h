// Calling what PyTorch has under the CPU's keys, from a kernel of sparse tensors of ours.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace tpjrt::device {

// Runs the call on the host, where the CPU's kernel does it, or says in its own words what is wrong with it. Counted, and an error
// in strict mode, as in host/host.h.
void run_sparse_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The same for a kernel that has its arguments unboxed: what the call gives. `name` and `overload` as in the schema: "aten::addmm",
// "out".
template <class... Arguments>
torch::jit::Stack stack_on_host(const char* name, const char* overload, Arguments&&... arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  torch::jit::Stack stack;
  torch::jit::push(stack, std::forward<Arguments>(arguments)...);
  run_sparse_on_host(op, &stack);
  return stack;
}

// The same of a call that gives one value.
template <class Result, class... Arguments>
Result on_host(const char* name, const char* overload, Arguments&&... arguments) {
  return stack_on_host(name, overload, std::forward<Arguments>(arguments)...).at(0).template to<Result>();
}

// The same of a call that gives two tensors.
template <class... Arguments>
std::tuple<at::Tensor, at::Tensor> on_host_both(const char* name, Arguments&&... arguments) {
  const torch::jit::Stack stack = stack_on_host(name, "", std::forward<Arguments>(arguments)...);
  return {stack.at(0).toTensor(), stack.at(1).toTensor()};
}

// The kernel that PyTorch has for the CPU's key, on the device's tensors: only of ops, or cases, in which it reads no memory
// (Note [Sparse kernels]).
template <class Result, class... Arguments>
Result shared_kernel(c10::DispatchKey key, const char* name, const char* overload, Arguments&&... arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  torch::jit::Stack stack;
  torch::jit::push(stack, std::forward<Arguments>(arguments)...);
  op.callBoxedForDispatchKey(key, stack);
  return stack.at(0).to<Result>();
}

}  // namespace tpjrt::device
