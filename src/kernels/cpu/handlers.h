// The handlers that programs on the CPU may call by name, without any registration by the user. They compute in XLA's
// buffers with PyTorch's libraries.
//
// To add one: a function in a file of this folder that defines a handler (XLA_FFI_DEFINE_HANDLER_SYMBOL's relatives,
// or tensors.h), a line in `all` (handlers.cpp), the threads it wants (team.h), and Emit::call_kernel in a rule that
// is added as `.with_kernels`. XLA's threads call a handler, several at once. A handler's meaning may only change
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

// One function for each file of this folder.
XLA_FFI_Error* aten_call(XLA_FFI_CallFrame* frame);  // aten_call.cpp
XLA_FFI_Error* product(XLA_FFI_CallFrame* frame);    // product.cpp
// convolution.cpp
XLA_FFI_Error* convolution(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* convolution_of_input(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* convolution_of_weight(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* frozen_convolution(XLA_FFI_CallFrame* frame);  // frozen_convolution.cpp
// rows.cpp
XLA_FFI_Error* batch_norm(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* batch_norm_backward(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* write(XLA_FFI_CallFrame* frame);   // write.cpp
XLA_FFI_Error* stored(XLA_FFI_CallFrame* frame);  // write.cpp
// rows.cpp
XLA_FFI_Error* softmax(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* softmax_backward(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* layer_norm(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* layer_norm_backward(XLA_FFI_CallFrame* frame);
XLA_FFI_Error* reduce_rows(XLA_FFI_CallFrame* frame);

}  // namespace tpjrt::kernels
