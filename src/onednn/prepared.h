// Convolutions that are ready to run: oneDNN's primitive, and the weight in the order that it computes in.
//
// Note [Weights by content]: a handler is told no versions, and memory that held one model's weights may hold another's later. So
// a weight is known by the digest that the program names it by (SHA-256, taken when it was frozen), never by its address; what has the same
// digest has the same content. It is brought into oneDNN's order when it is first met, and kept up to kMostBytes in all.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tpjrt::onednn {

// Logical sizes are NCHW and OIHW (G, O, I, H, W of groups); images lie with the channels last, weights row-major.
struct Form {
  dnnl::memory::dims images, weight, result, stride, padding, dilation;
  bool has_bias = false, has_added = false;
  dnnl::memory::data_type type = dnnl::memory::data_type::f32;
  std::string digest;  // of the weight

  auto operator<=>(const Form&) const = default;
};

struct Prepared {
  dnnl::convolution_forward::primitive_desc description;
  dnnl::convolution_forward run;
  dnnl::memory weight;
};

inline constexpr size_t kMostBytes = size_t{4} << 30;

const dnnl::engine& engine();
// From any thread. Throws dnnl::error for what oneDNN can't do.
std::shared_ptr<const Prepared> prepared(const Form& form, const void* weight);

}  // namespace tpjrt::onednn
