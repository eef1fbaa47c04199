// A value that XLA keeps in memory: a call that it knows nothing of, and which leaves the value where it is.
#include <xla/ffi/api/ffi.h>

#include "kernels/cpu/handlers.h"

namespace tpjrt::kernels {

XLA_FFI_Error* stored(XLA_FFI_CallFrame* frame) {
  static auto* handler =
      xla::ffi::Ffi::Bind()
          .Arg<xla::ffi::AnyBuffer>()
          .Ret<xla::ffi::AnyBuffer>()
          .To([](xla::ffi::AnyBuffer, xla::ffi::Result<xla::ffi::AnyBuffer>) { return xla::ffi::Error::Success(); })
          .release();
  return handler->Call(frame);
}

}  // namespace tpjrt::kernels
