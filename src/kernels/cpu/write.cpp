// A write through strides into an operand, and handlers: of a value that XLA must store, and of zeros.
#include <torch/library.h>
#include <xla/ffi/api/ffi.h>

#include <cstring>

#include "kernels/cpu/handlers.h"

namespace tpjrt::kernels {
namespace {

// Writes `update` to the result, which has the memory and the elements of the base. `strides`: the update's in the base,
// in elements. `offset`: from the first element.
at::Tensor& write_strided_out(const at::Tensor& /*base*/, const at::Tensor& update, const at::Tensor& offset,
                              c10::IntArrayRef strides, at::Tensor& result) {
  result.as_strided(update.sizes(), strides, *offset.const_data_ptr<int64_t>()).copy_(update);
  return result;
}

TORCH_LIBRARY_FRAGMENT(torch_pjrt, m) {
  m.def("write_strided(Tensor base, Tensor update, Tensor offset, int[] strides) -> Tensor");
  m.def("write_strided.out(Tensor base, Tensor update, Tensor offset, int[] strides, *, Tensor(a!) out) -> Tensor(a!)");
}
TORCH_LIBRARY_IMPL(torch_pjrt, CPU, m) { m.impl("write_strided.out", TORCH_FN(write_strided_out)); }

}  // namespace

// XLA can't see into this call, so it stores the operand first. The result is the operand's memory.
XLA_FFI_Error* stored(XLA_FFI_CallFrame* frame) {
  static auto* handler =
      xla::ffi::Ffi::Bind()
          .RemainingArgs()
          .Ret<xla::ffi::AnyBuffer>()
          .To([](xla::ffi::RemainingArgs, xla::ffi::Result<xla::ffi::AnyBuffer>) { return xla::ffi::Error::Success(); })
          .release();
  return handler->Call(frame);
}

// Results of zeros, which XLA doesn't know (Note [Caller's thread]).
XLA_FFI_Error* zeros(XLA_FFI_CallFrame* frame) {
  static auto* handler = xla::ffi::Ffi::Bind()
                             .RemainingArgs()
                             .RemainingRets()
                             .To([](xla::ffi::RemainingArgs, xla::ffi::RemainingRets results) {
                               for (size_t i = 0; i < results.size(); ++i) {
                                 auto result = results.get<xla::ffi::AnyBuffer>(i);
                                 if (result.has_error()) return xla::ffi::Error::Internal("a result is no buffer");
                                 std::memset((*result)->untyped_data(), 0, (*result)->size_bytes());
                               }
                               return xla::ffi::Error::Success();
                             })
                             .release();
  return handler->Call(frame);
}

}  // namespace tpjrt::kernels
