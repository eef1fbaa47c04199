// XLA's buffers as tensors, and how a handler computes with them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <xla/ffi/api/ffi.h>

namespace tpjrt::kernels {

// Over the buffer's memory, row-major. Throws for a dtype that torch lacks.
at::Tensor tensor_over(const xla::ffi::AnyBuffer& buffer);

// Over the same memory, in which an image's channels lie last (Emit::Orders).
at::Tensor channels_last(const at::Tensor& images);

// What a handler computes with: `operands`, and `results` to write to. Tensors may not outlive the call.
struct Tensors {
  std::vector<at::Tensor> operands, results;
};
Tensors tensors_of(const xla::ffi::RemainingArgs& args, const xla::ffi::RemainingRets& rets);

// A handler that is told its attributes: `work` may throw, and then the run fails with what it says. It is run in whichever thread
// XLA has, and itself says what is worth a team (team.h). Modes, such as autograd's, are set in it.
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
