// torch_pjrt::frozen_convolution: a convolution with a frozen weight, followed by an addition and an activation.
//
// oneDNN fuses the addition. It could fuse relu and relu6 as well, but turns NaN into 0 there, so they follow in
// place while the images are in the caches.
//
// torch_pjrt::batch_norm_in_training: ATen's batch norm, which returns the unbiased variance as well.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <tuple>

#include "kernels/cpu/frozen_weights.h"

namespace tpjrt::kernels {
namespace {

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

at::Tensor on_cpu(const at::Tensor& images, const std::optional<at::Tensor>& added, int64_t weight,
                  c10::IntArrayRef sizes, c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation,
                  int64_t groups, c10::string_view activation) {
  constexpr auto kLast = c10::MemoryFormat::ChannelsLast;
  const std::shared_ptr<const Frozen> frozen = find_frozen(weight);
  const Window window{stride, padding, dilation, groups};
  const at::Tensor x = images.contiguous(kLast);
  at::Tensor y;
  if (added) {
    y = at::empty(sizes, x.options().memory_format(kLast));
    if (added->const_data_ptr() != y.const_data_ptr()) y.copy_(*added);  // they differ unless the result is forwarded
    add_convolution(x, *frozen, window, y);
  } else {
    y = convolution_of(x, *frozen, window);
  }
  if (activation == "relu") y.clamp_min_(0);
  if (activation == "relu6") y.clamp_(0, 6);
  return y;
}

at::Tensor meta(const at::Tensor& x, const std::optional<at::Tensor>& /*added*/, int64_t /*weight*/,
                c10::IntArrayRef sizes, c10::IntArrayRef /*stride*/, c10::IntArrayRef /*padding*/,
                c10::IntArrayRef /*dilation*/, int64_t /*groups*/, c10::string_view /*activation*/) {
  return at::empty(sizes, x.options().memory_format(x.suggest_memory_format()));
}

// The variance comes from running statistics that start at zero with momentum 1.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm(const at::Tensor& x, const at::Tensor& weight,
                                                                      const at::Tensor& bias, double eps) {
  at::Tensor variance = at::zeros_like(weight), other_mean = at::zeros_like(weight);
  const auto [y, mean, rstd] =
      at::native_batch_norm(x, weight, bias, other_mean, variance, /*training=*/true, /*momentum=*/1, eps);
  return {y, mean, rstd, variance};
}

TORCH_LIBRARY_FRAGMENT(torch_pjrt, m) {
  m.def("batch_norm_in_training(Tensor x, Tensor weight, Tensor bias, float eps) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "frozen_convolution(Tensor x, Tensor? added, int weight, int[] sizes, int[] stride, int[] padding, int[] "
      "dilation, int groups, str activation) -> Tensor");
}
TORCH_LIBRARY_IMPL(torch_pjrt, Meta, m) { m.impl("frozen_convolution", TORCH_FN(meta)); }
TORCH_LIBRARY_IMPL(torch_pjrt, CPU, m) {
  m.impl("frozen_convolution", TORCH_FN(on_cpu));
  m.impl("batch_norm_in_training", TORCH_FN(batch_norm));
}

}  // namespace
}  // namespace tpjrt::kernels
