// The handlers that programs on the CPU may call by name, without any registration by the user. They compute in XLA's
// buffers with PyTorch's libraries.
//
// A rule that is added as `.with_kernels` calls an op of PyTorch by call_aten (ops/rule/by_aten.h), which needs no
// handler of its own (kept_call.h). XLA's threads call a handler, several at once. A handler's meaning may only change
// along with its name, because programs on disk call it by name.
#pragma once

#include <xla/ffi/api/c_api.h>

#include <map>
#include <string>

#include "pjrt/client.h"

namespace tpjrt::kernels {

// Returns false if TORCH_PJRT_LIBRARY_KERNELS=0.
bool are_cpu_kernels_wanted();
// Lets this client's programs call the handlers. Returns false, and registers nothing, if they aren't wanted, or if
// the plugin takes no handlers or has memory of its own.
bool give_cpu_kernels(pjrt::Client& client);

XLA_FFI_Error* aten_call(XLA_FFI_CallFrame* frame);  // kept_call.cpp
XLA_FFI_Error* stored(XLA_FFI_CallFrame* frame);     // write.cpp
XLA_FFI_Error* zeros(XLA_FFI_CallFrame* frame);      // write.cpp

}  // namespace tpjrt::kernels
