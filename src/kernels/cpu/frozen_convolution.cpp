// torch_pjrt::frozen_convolution: a convolution with a frozen weight, followed by an addition and an activation, as a
// handler and as an op on the CPU.
//
// oneDNN fuses the addition. It could fuse relu and relu6 as well, but turns NaN into 0 there, so they follow in
// place while the images are in the caches.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

#include <array>
#include <string_view>

#include "kernels/cpu/frozen_weights.h"
#include "kernels/cpu/handlers.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/tensors.h"

namespace tpjrt::kernels {
namespace {

// The ops that follow the convolution.
struct After {
  std::optional<at::Tensor> added;  // images like the result; may share its memory
  std::string_view activation;      // "none", "relu" or "relu6"
};

// Adds the convolution to `images`, in place.
void add_convolution(const at::Tensor& x, const Frozen& frozen, const Window& window, const at::Tensor& images) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_convolution_pointwise_", "binary");
  torch::jit::Stack stack{images,          x,
                          frozen.weight,   frozen.bias,
                          window.padding,  window.stride,
                          window.dilation, window.groups,
                          "add",           at::Scalar(1.0),
                          c10::IValue(),   c10::List<std::optional<at::Scalar>>(),
                          c10::IValue()};
  op.callBoxed(stack);
}

at::Tensor convolution_of(const at::Tensor& x, const Frozen& frozen, const Window& window) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_convolution_pointwise", "");
  torch::jit::Stack stack{x,
                          frozen.weight,
                          frozen.bias,
                          window.padding,
                          window.stride,
                          window.dilation,
                          window.groups,
                          "none",
                          c10::List<std::optional<at::Scalar>>(),
                          ""};
  op.callBoxed(stack);
  return stack.front().toTensor();
}

// All images are NHWC.
void convolve(const at::Tensor& x, int64_t number, const Window& window, const After& after, at::Tensor y) {
  const std::shared_ptr<const Frozen> frozen = find_frozen(number);
  if (after.added) {
    if (after.added->const_data_ptr() != y.const_data_ptr()) y.copy_(*after.added);
    add_convolution(x, *frozen, window, y);
  } else {
    const OutputForwarding place(y);
    place.give(convolution_of(x, *frozen, window));
  }
  if (after.activation == "relu") y.clamp_min_(0);
  if (after.activation == "relu6") y.clamp_(0, 6);
}

// Operands: images, and optionally the addend.
void do_frozen_convolution(const Tensors& tensors, const xla::ffi::Dictionary& attributes) {
  const auto ints = [&](const char* name) -> c10::IntArrayRef {
    const auto span = *attributes.get<xla::ffi::Span<const int64_t>>(name);
    return {span.begin(), span.size()};
  };
  constexpr int64_t kLarge = 1 << 12;  // elements of the result, each of which is some hundred multiplications
  const at::Tensor y = channels_last(tensors.results.at(0));
  compute(y.numel() >= kLarge, [&] {
    const c10::InferenceMode inference;
    After after{{}, *attributes.get<std::string_view>("activation")};
    if (tensors.operands.size() > 1) after.added = channels_last(tensors.operands[1]);
    const Window window{ints("stride"), ints("padding"), ints("dilation"), *attributes.get<int64_t>("groups")};
    convolve(channels_last(tensors.operands.at(0)), *attributes.get<int64_t>("weight"), window, after, y);
  });
}

at::Tensor on_cpu(const at::Tensor& x, const std::optional<at::Tensor>& added, int64_t weight, c10::IntArrayRef sizes,
                  c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, int64_t groups,
                  c10::string_view activation) {
  constexpr auto kLast = c10::MemoryFormat::ChannelsLast;
  const at::Tensor y = at::empty(sizes, x.options().memory_format(kLast));
  After after{{}, {activation.data(), activation.size()}};
  if (added) after.added = added->contiguous(kLast);
  convolve(x.contiguous(kLast), weight, {stride, padding, dilation, groups}, after, y);
  return y;
}

at::Tensor meta(const at::Tensor& x, const std::optional<at::Tensor>& /*added*/, int64_t /*weight*/,
                c10::IntArrayRef sizes, c10::IntArrayRef /*stride*/, c10::IntArrayRef /*padding*/,
                c10::IntArrayRef /*dilation*/, int64_t /*groups*/, c10::string_view /*activation*/) {
  return at::empty(sizes, x.options().memory_format(x.suggest_memory_format()));
}

TORCH_LIBRARY_FRAGMENT(torch_pjrt, m) {
  m.def(
      "frozen_convolution(Tensor x, Tensor? added, int weight, int[] sizes, int[] stride, int[] padding, int[] "
      "dilation, int groups, str activation) -> Tensor");
}
TORCH_LIBRARY_IMPL(torch_pjrt, Meta, m) { m.impl("frozen_convolution", TORCH_FN(meta)); }
TORCH_LIBRARY_IMPL(torch_pjrt, CPU, m) { m.impl("frozen_convolution", TORCH_FN(on_cpu)); }

}  // namespace

XLA_FFI_Error* frozen_convolution(XLA_FFI_CallFrame* frame) { return called<do_frozen_convolution>(frame); }

}  // namespace tpjrt::kernels
