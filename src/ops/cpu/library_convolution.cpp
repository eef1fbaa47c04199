// Decides which convolutions call oneDNN through the CPU's kernels (src/kernels/cpu/convolution.cpp), and which XLA
// compiles.
#include <algorithm>

#include "hlo/attribute.h"
#include "ops/contraction/correlation.h"
#include "ops/cpu/machine.h"
#include "ops/rule/dims.h"

namespace tpjrt::ops {
namespace {

enum class Part : uint8_t { kResult, kOfInput, kOfWeight };

// Note [Whose convolutions]: oneDNN computes some convolutions several times faster than XLA:CPU, and others slower.
// A convolution calls oneDNN where that is faster in whole networks. The choice depends on the dtype, the sizes and
// what oneDNN supports on this machine; docs/performance.md has the times.
//
// - bfloat16 calls oneDNN unless it is small, where oneDNN multiplies it with dedicated instructions (AVX512-BF16,
//   AMX). XLA converts to float32, and takes 2 to 8 times as long. With other AVX-512 instructions oneDNN takes twice
//   as long as XLA.
// - bfloat16 with a stride along a last dimension that ends in one or two elements stays with XLA
//   (is_strided_to_few).
// - float32 calls oneDNN unless it is small, with AVX-512. oneDNN comes near the processor's peak, and XLA takes 1.3
//   to 1.6 times as long. On AVX2 one is as fast as the other.
// - The weight's gradient of groups of several channels stays with XLA in both dtypes: oneDNN has no fast way for it.
// - float16 stays with XLA: oneDNN's gradients take seconds.
//
// Images have the NHWC layout, in which oneDNN is twice as fast. XLA's layouts carry that order from one call to the
// next, through the ops between them.
//
// Returns whether oneDNN would compute a convolution whose last dimension is strided into one or two elements. oneDNN
// runs a transposed convolution as the gradient of a convolution.
bool ends_in_few(Part part, const Value& x, const Type& y, const Geometry& g) {
  const int64_t given = x.dims().back(), result = y.dims.back();
  const int64_t size = part == Part::kOfWeight ? std::min(given, result) : g.transposed ? given : result;
  return is_strided_to_few(g.stride.back(), size);
}

bool is_the_librarys(Part part, const Value& x, const Value& w, const Type& y, const Geometry& g) {
  if (!are_the_librarys(x.element())) return false;
  if (x.element() == ElementType::kBF16 && ends_in_few(part, x, y, g)) return false;
  if (Machine::here().takes_all) return true;
  if (part == Part::kOfWeight && g.groups > 1 && w.dim(1) > 1) return false;
  const Type& over = g.transposed ? x.type : y;
  return over.elements() / over.dims[1] * w.type.elements() >= kLeastMultiplications;
}

std::map<std::string, std::string> attributes_of(const Geometry& g) {
  return {{"stride", hlo::attribute(g.stride)},     {"padding", hlo::attribute(g.padding)},
          {"dilation", hlo::attribute(g.dilation)}, {"output_padding", hlo::attribute(g.output_padding)},
          {"groups", hlo::attribute(g.groups)},     {"transposed", hlo::attribute(g.transposed)}};
}

}  // namespace

bool are_the_librarys(ElementType element) {
  const Machine& machine = Machine::here();
  if (element == ElementType::kBF16) return machine.bf16_dots || (machine.takes_all && machine.bf16);
  return element == ElementType::kF32 && machine.bf16;  // with AVX-512
}

std::optional<Value> library_convolution(Emit& e, const Value& x, const Value& w, const std::optional<Value>& bias,
                                         const Geometry& g, const Type& out) {
  if (!is_the_librarys(Part::kResult, x, w, out, g)) return {};
  Values operands{x, w};
  if (bias) operands.push_back(*bias);
  return e.call_kernel("torch_pjrt.convolution", operands, {out}, attributes_of(g),
                       {{channels_last(x.rank())}, {channels_last(x.rank())}})[0];
}

std::optional<Value> library_gradient_of_input(Emit& e, const Value& dy, const Value& x, const Value& w,
                                               const Geometry& g) {
  if (!is_the_librarys(Part::kOfInput, x, w, dy.type, g)) return {};
  return e.call_kernel("torch_pjrt.convolution_of_input", {dy, w}, {x.type}, attributes_of(g),
                       {{channels_last(x.rank())}, {channels_last(x.rank())}})[0];
}

std::optional<Values> library_gradients_of_weight(Emit& e, const Value& dy, const Value& x, const Value& w,
                                                  const Geometry& g, bool of_bias) {
  if (!is_the_librarys(Part::kOfWeight, x, w, dy.type, g)) return {};
  std::vector<Type> results{w.type};
  if (of_bias) results.push_back({w.element(), {dy.dim(1)}});
  const Dims order = channels_last(x.rank());
  return e.call_kernel("torch_pjrt.convolution_of_weight", {dy, x}, results, attributes_of(g), {{order, order}, {}});
}

}  // namespace tpjrt::ops
