// Outlines: what type a call's results have, and whether its arguments are right, by PyTorch's own shape functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

#include "device/call/stack.h"
#include "graph/number.h"
#include "graph/signature.h"

namespace tpjrt::device {

// What PyTorch says of a call without computing it.
struct Outline {
  std::vector<at::Tensor> operands;  // placeholders; a written one that was resized has its new sizes
  torch::jit::Stack results;
};

// Outlines a call, below autograd, autocast, modes and functorch. Structured ops by the C++ kernel that every backend shares,
// on placeholders of the device: the Python Meta kernels that hide it let mistakes pass, and are slow. Other ops by
// their Meta kernel, which may be Python and then takes the GIL. Throws what the kernel throws: the user's mistake, or
// an op whose result depends on data.
Outline outline(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers);

// Raises what the CPU raises for results of other dtypes than the functional op's: `written` says what the call's mutated
// arguments would be by that. Asked of the host's kernel, with tensors of
// other values; no verdict where those don't fit.
void check_out_dtypes(const graph::Signature& signature, c10::ArrayRef<graph::Number> numbers,
                      c10::ArrayRef<c10::ScalarType> written);

// A call that the kernel of a call makes that is outlined (Outlining), in place of recording it: a structured kernel's own `out=` gives its outputs back as they are.
void outline_inner(const c10::OperatorHandle& op, torch::jit::Stack& stack);

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
