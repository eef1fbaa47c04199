// Convolutions and their gradients by ATen's kernels, which are oneDNN's. Images lie with the channels last, weights as they are
// given: row-major.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "kernels/cpu/handlers.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/tensors.h"

namespace tpjrt::kernels {
namespace {

using Attributes = xla::ffi::Dictionary;

// Multiplications from which several threads are worth it.
constexpr int64_t kLargeConvolution = 1 << 20;

// Over the same memory, in which the channels lie last.
at::Tensor channels_last(const at::Tensor& images) {
  const c10::IntArrayRef sizes = images.sizes();
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  const auto next = [&](size_t d) {
    strides[d] = step;
    step *= sizes[d];
  };
  next(1);
  for (size_t d = sizes.size() - 1; d > 1; --d) next(d);
  next(0);
  return images.as_strided(sizes, strides);
}

c10::IntArrayRef ints(const Attributes& attributes, const char* name) {
  const auto span = *attributes.get<xla::ffi::Span<const int64_t>>(name);
  return {span.begin(), span.size()};
}

// oneDNN's convolution, which adds to what is in the result: to zeros, which are cheaper than a result of its own that is copied.
const std::optional<c10::OperatorHandle>& adding() {
  static const auto op = c10::Dispatcher::singleton().findSchema({"mkldnn::_convolution_pointwise_", "binary"});
  return op;
}

void add_convolution(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias,
                     const Attributes& attributes, const at::Tensor& y) {
  torch::jit::Stack stack{y,
                          x,
                          w,
                          bias,
                          ints(attributes, "padding"),
                          ints(attributes, "stride"),
                          ints(attributes, "dilation"),
                          *attributes.get<int64_t>("groups"),
                          "add",
                          at::Scalar(1.0),
                          c10::IValue(),
                          c10::List<std::optional<at::Scalar>>(),
                          c10::IValue()};
  adding()->callBoxed(stack);
}

// A weight is brought into the images' order at each call, by ATen's copy. Where it is larger than the images, they are brought into
// its order instead: oneDNN then turns the weight itself.
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
    if (x.dim() == 4 && !transposed && !rows && adding()) {
      y.zero_();
      return add_convolution(x, w, bias, attributes, y);
    }
    if (rows) x = x.contiguous();
    y.copy_(at::convolution(x, w, bias, ints(attributes, "stride"), ints(attributes, "padding"),
                            ints(attributes, "dilation"), transposed, ints(attributes, "output_padding"),
                            *attributes.get<int64_t>("groups")));
  });
}

// The gradient of `which` (0: images, 1: weight). What is asked for is not read: it is its own place.
at::Tensor gradient(size_t which, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                    const Attributes& attributes) {
  const auto [of_input, of_weight, of_bias] = at::convolution_backward(
      dy, x, w, std::nullopt, ints(attributes, "stride"), ints(attributes, "padding"), ints(attributes, "dilation"),
      *attributes.get<bool>("transposed"), ints(attributes, "output_padding"), *attributes.get<int64_t>("groups"),
      std::array<bool, 3>{which == 0, which == 1, false});
  return which == 0 ? of_input : of_weight;
}

// Operands: the gradient of what the convolution gave, and its weight.
void do_convolution_of_input(const Tensors& tensors, const Attributes& attributes) {
  const at::Tensor dx = channels_last(tensors.results.at(0)), &w = tensors.operands.at(1);
  compute_convolution(tensors.operands.at(0), w, [&] {
    const at::Tensor dy = channels_last(tensors.operands[0]);
    dx.copy_(is_for_rows(w, dx, dy) ? gradient(0, dy.contiguous(), tensors.results[0], w, attributes)
                                    : gradient(0, dy, dx, w, attributes));
  });
}

// Operands: the gradient of what the convolution gave, and its images.
void do_convolution_of_weight(const Tensors& tensors, const Attributes& attributes) {
  const at::Tensor& dw = tensors.results.at(0);
  compute_convolution(tensors.operands.at(0), dw, [&] {
    at::Tensor dy = channels_last(tensors.operands[0]), x = channels_last(tensors.operands.at(1));
    if (is_for_rows(dw, x, dy)) dy = dy.contiguous(), x = x.contiguous();
    dw.copy_(gradient(1, dy, x, dw, attributes));
  });
}

}  // namespace

XLA_FFI_Error* convolution(XLA_FFI_CallFrame* frame) { return called<do_convolution>(frame); }
XLA_FFI_Error* convolution_of_input(XLA_FFI_CallFrame* frame) { return called<do_convolution_of_input>(frame); }
XLA_FFI_Error* convolution_of_weight(XLA_FFI_CallFrame* frame) { return called<do_convolution_of_weight>(frame); }

}  // namespace tpjrt::kernels
