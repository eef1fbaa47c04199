// Convolutions and their gradients by ATen's kernels, which call oneDNN. Images have the NHWC layout; weights are
// row-major, as given.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/core/InferenceMode.h>

#include <array>
#include <functional>
#include <optional>
#include <tuple>

#include "kernels/cpu/handlers.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/tensors.h"

namespace tpjrt::kernels {
namespace {

using Attributes = xla::ffi::Dictionary;

// The number of multiplications from which several threads are worth it.
constexpr int64_t kLargeConvolution = 1 << 20;

c10::IntArrayRef ints(const Attributes& attributes, const char* name) {
  const auto span = *attributes.get<xla::ffi::Span<const int64_t>>(name);
  return {span.begin(), span.size()};
}

// Returns oneDNN's convolution, as PyTorch's compiler calls it. It takes images in their own layout; at::convolution
// has to choose one.
const std::optional<c10::OperatorHandle>& pointwise() {
  static const auto op = c10::Dispatcher::singleton().findSchema({"mkldnn::_convolution_pointwise", ""});
  return op;
}

at::Tensor by_pointwise(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias,
                        const Attributes& attributes) {
  torch::jit::Stack stack{x,
                          w,
                          bias,
                          ints(attributes, "padding"),
                          ints(attributes, "stride"),
                          ints(attributes, "dilation"),
                          *attributes.get<int64_t>("groups"),
                          "none",
                          c10::List<std::optional<at::Scalar>>(),
                          ""};
  pointwise()->callBoxed(stack);
  return stack.front().toTensor();
}

// ATen copies a weight to the images' layout at each call. If the weight is larger than the images, they are copied
// to its layout instead, and oneDNN reorders the weight itself.
bool is_for_rows(const at::Tensor& w, const at::Tensor& x, const at::Tensor& y) {
  return w.numel() > x.numel() + y.numel();
}

void compute_convolution(const at::Tensor& result, const at::Tensor& w, const std::function<void()>& work) {
  compute(result.numel() / result.size(1) * w.numel() >= kLargeConvolution, [&] {
    const c10::InferenceMode inference;
    work();
  });
}

// Operands: images, weight, and bias if there is one.
void do_convolution(const Tensors& tensors, const Attributes& attributes) {
  const at::Tensor y = channels_last(tensors.results.at(0)), &w = tensors.operands.at(1);
  compute_convolution(y, w, [&] {
    at::Tensor x = channels_last(tensors.operands[0]);
    std::optional<at::Tensor> bias;
    if (tensors.operands.size() > 2) bias = tensors.operands[2];
    const bool transposed = *attributes.get<bool>("transposed"), rows = is_for_rows(w, x, y);
    if (rows) x = x.contiguous();
    const OutputForwarding place(y);
    if (x.dim() == 4 && !transposed && !rows && pointwise()) return place.give(by_pointwise(x, w, bias, attributes));
    place.give(at::convolution(x, w, bias, ints(attributes, "stride"), ints(attributes, "padding"),
                               ints(attributes, "dilation"), transposed, ints(attributes, "output_padding"),
                               *attributes.get<int64_t>("groups")));
  });
}

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Returns the gradients of images, weight and bias that the mask has. Callers pass a gradient's own memory for the
// operand that isn't read.
Gradients gradients(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w, const Attributes& attributes,
                    std::array<bool, 3> mask) {
  const int64_t channels = dy.size(1);
  return at::convolution_backward(dy, x, w, c10::IntArrayRef(channels), ints(attributes, "stride"),
                                  ints(attributes, "padding"), ints(attributes, "dilation"),
                                  *attributes.get<bool>("transposed"), ints(attributes, "output_padding"),
                                  *attributes.get<int64_t>("groups"), mask);
}

// Operands: the gradient of the convolution's result, and its weight.
void do_convolution_of_input(const Tensors& tensors, const Attributes& attributes) {
  const at::Tensor dx = channels_last(tensors.results.at(0)), &w = tensors.operands.at(1);
  compute_convolution(tensors.operands.at(0), w, [&] {
    at::Tensor dy = channels_last(tensors.operands[0]), x = dx;
    if (is_for_rows(w, dx, dy)) dy = dy.contiguous(), x = tensors.results[0];
    const OutputForwarding place(dx);
    place.give(std::get<0>(gradients(dy, x, w, attributes, {true, false, false})));
  });
}

// Operands: the gradient of the convolution's result, and its images. Results: the gradient of the weight, and of the
// bias if asked.
void do_convolution_of_weight(const Tensors& tensors, const Attributes& attributes) {
  const at::Tensor& dw = tensors.results.at(0);
  compute_convolution(tensors.operands.at(0), dw, [&] {
    at::Tensor dy = channels_last(tensors.operands[0]), x = channels_last(tensors.operands.at(1));
    if (is_for_rows(dw, x, dy)) dy = dy.contiguous(), x = x.contiguous();
    const bool with_bias = tensors.results.size() > 1;
    const auto [of_x, of_w, of_bias] = gradients(dy, x, dw, attributes, {false, true, with_bias});
    dw.copy_(of_w);
    if (with_bias) tensors.results[1].copy_(of_bias);
  });
}

}  // namespace

XLA_FFI_Error* convolution(XLA_FFI_CallFrame* frame) { return called<do_convolution>(frame); }
XLA_FFI_Error* convolution_of_input(XLA_FFI_CallFrame* frame) { return called<do_convolution_of_input>(frame); }
XLA_FFI_Error* convolution_of_weight(XLA_FFI_CallFrame* frame) { return called<do_convolution_of_weight>(frame); }

}  // namespace tpjrt::kernels
