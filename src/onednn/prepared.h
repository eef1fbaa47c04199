// Calls that are ready to run: oneDNN's primitive, and the weight in the primitive's layout.
//
// Note [Weights by content]: a handler is passed no versions, and memory that held one model's weights may hold
// another's later. A weight is therefore identified by the digest in the program (SHA-256, taken when it was frozen),
// never by its address; equal digests mean equal content. It is reordered to oneDNN's layout when it is first seen,
// and kept, up to kMostBytes in all. Calls of other sizes share it if the layout is the same.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <cstdint>
#include <memory>
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

}  // namespace tpjrt::onednn
