// Calls that are ready to run: oneDNN's primitive, and the weight in the order that it computes in.
//
// Note [Weights by content]: a handler is told no versions, and memory that held one model's weights may hold another's later. So
// a weight is known by the digest that the program names it by (SHA-256, taken when it was frozen), never by its address; what has the same
// digest has the same content. It is brought into oneDNN's order when it is first met, and kept up to kMostBytes in all. Calls of other
// sizes share it where the order is the same.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tpjrt::onednn {

// Of a convolution: logical sizes NCHW and OIHW (G, O, I, H, W of groups); images lie with the channels last, weights row-major. Of a
// product: rows by columns, and the weight may lie turned. It has no strides, by which the two differ.
struct Form {
  dnnl::memory::dims source, weight, result, stride, padding, dilation;
  bool is_turned = false, has_bias = false, has_added = false;
  dnnl::memory::data_type type = dnnl::memory::data_type::undef;
  std::string digest;  // of the weight

  auto operator<=>(const Form&) const = default;
};

struct Prepared {
  dnnl::primitive run;
  dnnl::memory::desc source, bias, result, scratch;  // of what is not there, none
  dnnl::memory::desc given_weight, wanted_weight;    // as the program has it, and as the primitive takes it
  std::shared_ptr<const dnnl::memory> weight;        // set by prepared()
};

inline constexpr size_t kMostBytes = size_t{4} << 30;

const dnnl::engine& engine();
// `make` is asked for what was not met before. From any thread. Throws dnnl::error for what oneDNN can't do.
std::shared_ptr<const Prepared> prepared(const Form& form, const void* weight, Prepared (*make)(const Form&));

}  // namespace tpjrt::onednn
