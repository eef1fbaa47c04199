// The operands of a handler's call, and how it is run.
#pragma once

#include <xla/ffi/api/ffi.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "onednn/prepared.h"

namespace tpjrt::onednn {

namespace ffi = xla::ffi;

// Operands: the source, the weight, and optionally a bias and an addend.
struct Call {
  std::vector<ffi::AnyBuffer> operands;
  ffi::AnyBuffer result;
  bool has_bias;

  Call(ffi::RemainingArgs given, const ffi::Dictionary& attributes, ffi::AnyBuffer into);
  bool has_added() const { return operands.size() > (has_bias ? 3 : 2); }
  // Throws std::invalid_argument unless the dtype is float32 or bfloat16.
  dnnl::memory::data_type type() const;
  void run(const Prepared& ready) const;
};

inline dnnl::memory::dims dims_of(ffi::Span<const int64_t> span) { return {span.begin(), span.end()}; }

std::string said_of(const std::exception& error);

template <void (*work)(const Call&, const ffi::Dictionary&)>
ffi::Error handle(ffi::RemainingArgs operands, ffi::Dictionary attributes, ffi::Result<ffi::AnyBuffer> result) {
  try {
    work(Call(operands, attributes, *result), attributes);
    return ffi::Error::Success();
  } catch (const std::exception& error) {
    return ffi::Error::Internal(said_of(error));
  }
}

}  // namespace tpjrt::onednn

#define TPJRT_ONEDNN_HANDLER(symbol, work)                                                           \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* symbol(XLA_FFI_CallFrame* frame); \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(symbol, tpjrt::onednn::handle<tpjrt::onednn::work>,                  \
                                xla::ffi::Ffi::Bind().RemainingArgs().Attrs().Ret<xla::ffi::AnyBuffer>())
