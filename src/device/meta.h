// PyTorch's Meta kernels: what type a call's results have, and whether its arguments are right.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <vector>

#include "graph/number.h"
#include "graph/signature.h"

namespace tpjrt::device {

// Writes a signature out as a call again: constants as they are, numbers as `numbers` says, and for each operand what
// `tensor(operand)` gives. Generators are None.
torch::jit::Stack make_stack(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers,
                             const std::function<at::Tensor(uint32_t operand)>& tensor);

// A tensor of that type on the meta device.
at::Tensor meta_tensor(graph::TypePtr type, bool wrapped_number);

// Runs the op's Meta kernel: arguments on the stack are replaced by the results. Below autograd, autocast, modes and
// functorch; takes the GIL where the kernel is Python. Throws what the kernel throws.
void run_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// Everything above the backend is switched off for the thread while this lives.
class BelowEverything {
 public:
  BelowEverything();
  ~BelowEverything();
  BelowEverything(const BelowEverything&) = delete;
  BelowEverything& operator=(const BelowEverything&) = delete;

 private:
  struct State;
  State* state_;
};

}  // namespace tpjrt::device
