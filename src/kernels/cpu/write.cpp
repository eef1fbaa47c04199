// Handlers that only move memory: a write through strides into an operand, and a value that XLA must store.
#include <c10/core/InferenceMode.h>
#include <xla/ffi/api/ffi.h>

#include "kernels/cpu/handlers.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/tensors.h"

namespace tpjrt::kernels {
namespace {

// Operands: the base, whose memory is the result's, the update, and an offset from the first element. The attribute
// `strides` has the update's strides in the base, in elements.
void do_write(const Tensors& tensors, const xla::ffi::Dictionary& attributes) {
  const at::Tensor& update = tensors.operands.at(1);
  const auto strides = *attributes.get<xla::ffi::Span<const int64_t>>("strides");
  compute(update.numel() >= 1 << 16, [&] {
    const c10::InferenceMode inference;
    const int64_t offset = *tensors.operands.at(2).const_data_ptr<int64_t>();
    tensors.results.at(0).as_strided(update.sizes(), {strides.begin(), strides.size()}, offset).copy_(update);
  });
}

}  // namespace

XLA_FFI_Error* write(XLA_FFI_CallFrame* frame) { return called<do_write>(frame); }

// XLA can't see into this call, so it stores the operand first. The result is the operand's memory.
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
