// Outlines: the types of a call's results, and whether its arguments are valid, from PyTorch's own shape functions.
//
// Trials: the CPU's kernel is called on small tensors, because it alone knows which calls it refuses where Meta
// accepts everything.
//
// Corrections where Meta kernels differ from the CPU's kernels: in strides above all, in places in dtypes and sizes.
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "device/aten_call/arguments.h"
#include "graph/scalar_value.h"
#include "graph/signature.h"

namespace tpjrt::device {

// The result of a call's shape function, without computing the call.
struct Outline {
  std::vector<at::Tensor> operands;  // placeholders; a written one that was resized has its new sizes
  torch::jit::Stack results;
};

// Outlines a call below autograd, autocast, modes and functorch. Structured ops use the C++ kernel that all backends
// share, on placeholders of the device: the Python Meta kernels that hide it accept invalid calls, and are slow.
// Other ops use their Meta kernel, which may be Python and then takes the GIL. Throws the kernel's exception: an
// error of the user's, or an op whose result depends on data.
Outline outline(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars);

// Handles a call that an outlined op's kernel makes (Outlining), instead of recording it: a structured kernel's own
// `out=` returns its outputs unchanged.
void outline_inner(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// Switches off everything above the backend for the thread while this lives.
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

// Both functions throw an error that the CPU's kernel raises for the call but not for a harmless variant of it. They
// return silently if the kernel can't be tried on tensors of ones.

// In the harmless variant, the mutated arguments have the dtypes `written`, which are those of the functional op's
// results.
void check_out_dtypes(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars,
                      c10::ArrayRef<c10::ScalarType> written);

// In the harmless variant, these numbers are 1.
void check_scalars(const graph::Signature& signature, c10::ArrayRef<graph::ScalarValue> scalars,
                   c10::ArrayRef<uint32_t> fitted);

// Replaces Meta's results by the CPU's. Only ops in the table of corrections.cpp are changed.
void correct(const graph::Signature& signature, Outline& outline);

}  // namespace tpjrt::device
