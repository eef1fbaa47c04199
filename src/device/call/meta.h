// Outlines: what type a call's results have, and whether its arguments are right, by PyTorch's own shape functions.
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

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

// A call that the kernel of a call makes that is outlined (Outlining), in place of recording it: a structured kernel's own `out=` gives its outputs back as they are.
void outline_inner(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// Everything above the backend is switched off for the thread while this lives.
class BelowEverything {
 public:
  BelowEverything()
      : above_(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
               c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchVmapMode,
                                    c10::DispatchKey::FuncTorchGradWrapper,
                                    c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                    c10::DispatchKey::FuncTorchDynamicLayerBackMode, c10::DispatchKey::Functionalize,
                                    c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                                    c10::DispatchKey::PythonDispatcher})),
        torch_function_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
    // A user's torch function mode (torch.device("pjrt") as a context, say) must not see the kernels' own calls.
    at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  }
  ~BelowEverything() { at::impl::PythonTorchFunctionTLS::set_disabled_state(torch_function_); }
  BelowEverything(const BelowEverything&) = delete;
  BelowEverything& operator=(const BelowEverything&) = delete;

 private:
  c10::impl::ExcludeDispatchKeyGuard above_;
  at::impl::TorchFunctionDisabledState torch_function_;
};

}  // namespace tpjrt::device
