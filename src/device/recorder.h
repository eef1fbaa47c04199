// The one boxed kernel: every ATen call on "pjrt" tensors that is not a view or a factory becomes a node here.
//
// A call is described by a key of words (operator, operand types, attributes; numbers apart). The first call with a key
// runs the Meta kernel and asks the engine whether the op can be lowered; the answer, a Plan, is kept for ever. Later
// calls look the plan up, make a node, and wrap or rebind storages as the schema's alias info says.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>

#include "device/operator.h"

namespace tpjrt::device {

// The kernel of one overload. Thread-safe.
class Recorder final : public c10::OperatorKernel {
 public:
  explicit Recorder(const c10::OperatorHandle& op) : operator_(op) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  Operator operator_;
};

// The backend fallback.
void record_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Records the call whose arguments end the stack, or runs it on the host.
void record(const Operator& op, torch::jit::Stack& stack);

}  // namespace tpjrt::device
