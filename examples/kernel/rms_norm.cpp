// RMS norm over the last dimension, as handlers of XLA's FFI.
#include <xla/ffi/api/ffi.h>

#include <cmath>

namespace ffi = xla::ffi;

using Tensor = ffi::Buffer<ffi::F32>;
using Result = ffi::ResultBuffer<ffi::F32>;

static ffi::Error rms_norm(Tensor x, Tensor scale, double eps, Result y) {
  const auto dims = x.dimensions();
  if (dims.size() == 0 || scale.element_count() != static_cast<size_t>(dims.back())) {
    return ffi::Error::InvalidArgument("scale has another size than x's rows");
  }
  const auto width = static_cast<size_t>(dims.back());
  const float* row = x.typed_data();
  float* out = y->typed_data();
  for (size_t done = 0; done < x.element_count(); done += width, row += width, out += width) {
    float squares = 0;
    for (size_t i = 0; i < width; ++i) squares += row[i] * row[i];
    const float factor = 1 / std::sqrt(squares / static_cast<float>(width) + static_cast<float>(eps));
    for (size_t i = 0; i < width; ++i) out[i] = row[i] * factor * scale.typed_data()[i];
  }
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(rms_norm_f32, rms_norm,
                              ffi::Ffi::Bind().Arg<Tensor>().Arg<Tensor>().Attr<double>("eps").Ret<Tensor>());
