// Convolutions that oneDNN computes (Note [Claims]), through the CPU's kernels (src/kernels/cpu/convolution.cpp).
//
// Lowers torch_pjrt::frozen_convolution to the CPU's kernel (src/kernels/cpu/frozen_convolution.cpp).
#include <algorithm>

#include "hlo/type.h"
#include "ops/claims/claims.h"
#include "ops/contraction/contraction.h"
#include "ops/rule/dims.h"

namespace tpjrt::ops {

namespace {

enum class Part : uint8_t { kResult, kOfInput, kOfWeight };

// Returns the size of the last dimension that the stride leads into. oneDNN runs a transposed convolution as the
// gradient of a convolution.
int64_t last_size(Part part, const Value& x, const Type& y, const Geometry& g) {
  const int64_t given = x.dims().back(), result = y.dims.back();
  return part == Part::kOfWeight ? std::min(given, result) : g.transposed ? given : result;
}

// Images of claimed convolutions have the NHWC layout, in which oneDNN is twice as fast. XLA's layouts carry that order
// from one call to the next, through the ops between them.
bool is_claimed(Part part, const Value& x, const Value& w, const Type& y, const Geometry& g) {
  const Type& over = g.transposed ? x.type : y;
  if (over.elements() == 0) return false;
  uint8_t layout = layout_of_stride(g.stride.back(), last_size(part, x, y, g));
  if (part == Part::kOfWeight && g.groups > 1 && w.dim(1) > 1) layout |= kGrouped;
  const Heavy op = part == Part::kOfWeight ? Heavy::kConvolutionOfWeight : Heavy::kConvolution;
  return ops::is_claimed(op, x.element(), {over.elements() / over.dims[1] * w.type.elements()}, layout);
}

std::map<std::string, std::string> attributes_of(const Geometry& g) {
  return {{"stride", hlo::attribute(g.stride)},     {"padding", hlo::attribute(g.padding)},
          {"dilation", hlo::attribute(g.dilation)}, {"output_padding", hlo::attribute(g.output_padding)},
          {"groups", hlo::attribute(g.groups)},     {"transposed", hlo::attribute(g.transposed)}};
}

}  // namespace

std::optional<Value> library_convolution(Emit& e, const Value& x, const Value& w, const std::optional<Value>& bias,
                                         const Geometry& g, const Type& out) {
  if (!is_claimed(Part::kResult, x, w, out, g)) return {};
  Values operands{x, w};
  if (bias) operands.push_back(*bias);
  return e.call_kernel("torch_pjrt.convolution", operands, {out}, attributes_of(g),
                       {{channels_last(x.rank())}, {channels_last(x.rank())}})[0];
}

std::optional<Value> library_gradient_of_input(Emit& e, const Value& dy, const Value& x, const Value& w,
                                               const Geometry& g) {
  if (!is_claimed(Part::kOfInput, x, w, dy.type, g)) return {};
  return e.call_kernel("torch_pjrt.convolution_of_input", {dy, w}, {x.type}, attributes_of(g),
                       {{channels_last(x.rank())}, {channels_last(x.rank())}})[0];
}

std::optional<Values> library_gradients_of_weight(Emit& e, const Value& dy, const Value& x, const Value& w,
                                                  const Geometry& g, bool of_bias) {
  if (!is_claimed(Part::kOfWeight, x, w, dy.type, g)) return {};
  std::vector<Type> results{w.type};
  if (of_bias) results.push_back({w.element(), {dy.dim(1)}});
  const Dims order = channels_last(x.rank());
  return e.call_kernel("torch_pjrt.convolution_of_weight", {dy, x}, results, attributes_of(g), {{order, order}, {}});
}

Values library_frozen_convolution(Emit& e, const Call& c) {
  const Value x = c.tensor("x");
  const Dims order = channels_last(x.rank());
  Values operands{x};
  Emit::Orders orders{{order}, {order}};
  if (const auto added = c.optional_tensor("added")) {
    operands.push_back(*added);
    orders.operands.push_back(order);
  }
  std::map<std::string, std::string> attributes{{"weight", hlo::attribute(c.integer("weight"))},
                                                {"groups", hlo::attribute(c.integer("groups"))},
                                                {"activation", hlo::attribute(c.string("activation"))}};
  for (const char* name : {"stride", "padding", "dilation"}) attributes[name] = hlo::attribute(c.ints(name));
  return e.call_kernel("torch_pjrt.frozen_convolution", operands, {e.type_of(c.result())}, attributes, orders,
                       c.has("added") ? std::optional<size_t>(1) : std::nullopt);
}

}  // namespace tpjrt::ops
