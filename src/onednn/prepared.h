// Calls that are ready to run: the operands of a handler's call, and oneDNN's primitive with the weight in its layout.
#pragma once

#include <xla/ffi/api/ffi.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace tpjrt::onednn {

// The form of a convolution has logical sizes NCHW and OIHW (G, O, I, H, W with groups); images are NHWC, weights
// row-major. The form of a product has rows by columns, and its weight may be transposed. A product has no strides,
// which tells the two apart.
struct Form {
  dnnl::memory::dims source, weight, result, stride, padding, dilation;
  bool is_transposed = false, has_bias = false, has_added = false;
  dnnl::memory::data_type type = dnnl::memory::data_type::undef;
  std::string digest;  // of the weight's content

  auto operator<=>(const Form&) const = default;
};

// A call that is ready to run: oneDNN's primitive, and the weight in the primitive's layout.
//
// Note [Weights by content]: a handler is passed no versions, and memory that held one model's weights may hold
// another's later. A weight is therefore identified by the digest in the program (SHA-256, taken when it was frozen),
// never by its address; equal digests mean equal content. It is reordered to oneDNN's layout when it is first seen,
// and kept, up to kMostBytes in all. Calls of other sizes share it if the layout is the same.
struct Prepared {
  dnnl::primitive run;
  dnnl::memory::desc source, bias, result, scratch;  // empty for operands that don't exist
  dnnl::memory::desc given_weight, wanted_weight;    // the layout in the program, and the primitive's
  std::shared_ptr<const dnnl::memory> weight;        // set by prepared()
};

inline constexpr size_t kMostBytes = size_t{4} << 30;

const dnnl::engine& engine();
// Returns the prepared call of a form; calls `make` for a form that was not seen before. May be called from any
// thread. Throws dnnl::error for calls that oneDNN can't run.
std::shared_ptr<const Prepared> prepared(const Form& form, const void* weight, Prepared (*make)(const Form&));

namespace ffi = xla::ffi;

// The operands of a handler's call, and how it is run: the source, the weight, and optionally a bias and an addend.
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
