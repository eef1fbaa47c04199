// XLA's buffers as tensors, and the frame of a handler that computes with them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <xla/ffi/api/ffi.h>

namespace tpjrt::kernels {

// Returns a row-major tensor over the buffer's memory. Throws for a dtype that torch lacks.
at::Tensor tensor_over(const xla::ffi::AnyBuffer& buffer);

// Returns an NCHW tensor over memory in NHWC layout (Emit::Orders).
at::Tensor channels_last(const at::Tensor& images);

// The operands of a handler, and the results to write to. The tensors may not outlive the call.
struct Tensors {
  std::vector<at::Tensor> operands, results;
};
Tensors tensors_of(const xla::ffi::RemainingArgs& args, const xla::ffi::RemainingRets& rets);

// A handler that passes on its attributes. If `work` throws, the run fails with its message. `work` runs in any of
// XLA's threads, and decides itself what is worth a team (team.h). It sets modes such as autograd's itself.
template <void (*work)(const Tensors& tensors, const xla::ffi::Dictionary& attributes)>
XLA_FFI_Error* called(XLA_FFI_CallFrame* frame) {
  static auto* handler =
      xla::ffi::Ffi::Bind()
          .RemainingArgs()
          .RemainingRets()
          .Attrs()
          .To([](xla::ffi::RemainingArgs args, xla::ffi::RemainingRets rets, xla::ffi::Dictionary attributes) {
            try {
              work(tensors_of(args, rets), attributes);
            } catch (const c10::Error& error) {
              return xla::ffi::Error::Internal(error.what_without_backtrace());
            }
            return xla::ffi::Error::Success();
          })
          .release();
  return handler->Call(frame);
}

}  // namespace tpjrt::kernels
