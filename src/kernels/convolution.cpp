// Convolutions by ATen's CPU kernels, which are oneDNN's, as handlers of XLA's FFI. They are registered like any user's, by
// python/torch_pjrt/kernels/convolution.py, from the library that this is linked into.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <xla/ffi/api/ffi.h>

#include <array>
#include <functional>
#include <mutex>
#include <optional>

#include "kernels/cpu/team.h"
#include "kernels/packed_weights.h"

namespace tpjrt::kernels {
namespace {

namespace ffi = xla::ffi;
using Ints = ffi::Span<const int64_t>;

c10::IntArrayRef to_torch(Ints span) { return {span.begin(), span.size()}; }

// Over the buffer: row-major.
at::Tensor rows_over(const ffi::AnyBuffer& buffer) {
  const auto dims = buffer.dimensions();
  return at::from_blob(buffer.untyped_data(), c10::IntArrayRef(dims.begin(), dims.size()), at::kFloat);
}

// How images lie. What is registered says the same to XLA, which tells a handler no layouts.
enum class Images : uint8_t { kChannelsLast, kRows };

// Over the buffer: images with the channels last, which oneDNN takes as they are, or row-major; all else row-major.
template <Images lie>
at::Tensor tensor_over(const ffi::AnyBuffer& buffer) {
  const auto dims = buffer.dimensions();
  const c10::IntArrayRef sizes(dims.begin(), dims.size());
  if (lie == Images::kRows || sizes.size() != 4) return rows_over(buffer);
  const std::array<int64_t, 4> strides{sizes[1] * sizes[2] * sizes[3], 1, sizes[1] * sizes[3], sizes[1]};
  return at::from_blob(buffer.untyped_data(), sizes, strides, at::kFloat);
}
template <Images lie>
at::Tensor argument(const ffi::RemainingArgs& args, size_t i) {
  return tensor_over<lie>(*args.get<ffi::AnyBuffer>(i));
}
template <Images lie>
at::Tensor result(const ffi::RemainingRets& rets, size_t i) {
  return tensor_over<lie>(**rets.get<ffi::AnyBuffer>(i));
}

// With all threads (Note [One team]), and one at a time, also where there is one.
void together(const std::function<void()>& work) {
  static auto* alone = new std::mutex;
  compute(/*large=*/true, [&] {
    const std::lock_guard guard(*alone);
    const c10::InferenceMode inference;
    work();
  });
}

// oneDNN's convolution, which adds to what is in the result: to zeros, which are cheaper than a result of its own that is
// copied.
const std::optional<c10::OperatorHandle>& in_place() {
  static const auto op = c10::Dispatcher::singleton().findSchema({"mkldnn::_convolution_pointwise_", "binary"});
  return op;
}

// args: input, weight, and bias if there is one.
template <Images lie>
void forward(ffi::RemainingArgs args, ffi::RemainingRets rets, Ints stride, Ints padding, Ints dilation,
             bool transposed, Ints output_padding, int64_t groups) {
  std::optional<at::Tensor> bias;
  if (args.size() > 2) bias = argument<lie>(args, 2);
  if (const at::Tensor x = argument<lie>(args, 0); x.dim() == 4 && !transposed && in_place()) {
    static auto* packed = new PackedWeights;
    at::Tensor weight = rows_over(*args.get<ffi::AnyBuffer>(1)), y = result<lie>(rets, 0).zero_();
    if (auto found =
            packed->find(weight, {to_torch(padding), to_torch(stride), to_torch(dilation), x.sizes(), groups})) {
      weight = *found;
    }
    torch::jit::Stack stack{y,
                            x,
                            weight,
                            bias,
                            to_torch(padding),
                            to_torch(stride),
                            to_torch(dilation),
                            groups,
                            "add",
                            at::Scalar(1.0),
                            c10::IValue(),
                            c10::List<std::optional<at::Scalar>>(),
                            c10::IValue()};
    in_place()->callBoxed(stack);
    return;
  }
  result<lie>(rets, 0).copy_(at::convolution(argument<lie>(args, 0), argument<lie>(args, 1), bias, to_torch(stride),
                                             to_torch(padding), to_torch(dilation), transposed,
                                             to_torch(output_padding), groups));
}

// args: grad_output, input, weight; of the gradients of input, weight and bias those that the mask has. There may be
// `bias_sizes` among the attributes, or not.
template <Images lie>
void backward(ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::Dictionary attributes) {
  const auto ints = [&](const char* name) { return to_torch(*attributes.get<Ints>(name)); };
  const at::Tensor grad = argument<lie>(args, 0);
  const int64_t channels = grad.size(1);
  const c10::IntArrayRef asked = ints("output_mask");
  const std::array<bool, 3> mask{asked[0] != 0, asked[1] != 0, asked[2] != 0};
  const auto [input, weight, bias] =
      at::convolution_backward(grad, argument<lie>(args, 1), argument<lie>(args, 2), c10::IntArrayRef(channels),
                               ints("stride"), ints("padding"), ints("dilation"), *attributes.get<bool>("transposed"),
                               ints("output_padding"), *attributes.get<int64_t>("groups"), mask);
  size_t next = 0;
  for (const at::Tensor& gradient : {input, weight, bias}) {
    if (gradient.defined()) result<lie>(rets, next++).copy_(gradient);
  }
}

template <Images lie>
XLA_FFI_Error* call_forward(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .RemainingArgs()
                             .RemainingRets()
                             .Attr<Ints>("stride")
                             .Attr<Ints>("padding")
                             .Attr<Ints>("dilation")
                             .Attr<bool>("transposed")
                             .Attr<Ints>("output_padding")
                             .Attr<int64_t>("groups")
                             .To([](auto... given) {
                               together([&] { forward<lie>(given...); });
                               return ffi::Error::Success();
                             })
                             .release();
  return handler->Call(frame);
}

template <Images lie>
XLA_FFI_Error* call_backward(XLA_FFI_CallFrame* frame) {
  static auto* handler = ffi::Ffi::Bind()
                             .RemainingArgs()
                             .RemainingRets()
                             .Attrs()
                             .To([](ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::Dictionary attributes) {
                               together([&] { backward<lie>(args, rets, attributes); });
                               return ffi::Error::Success();
                             })
                             .release();
  return handler->Call(frame);
}

}  // namespace
}  // namespace tpjrt::kernels

#define TPJRT_HANDLER(symbol, function)                                                               \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* symbol(XLA_FFI_CallFrame* frame) { \
    using tpjrt::kernels::Images;                                                                     \
    return tpjrt::kernels::function(frame);                                                           \
  }

TPJRT_HANDLER(torch_pjrt_convolution, call_forward<Images::kChannelsLast>)
TPJRT_HANDLER(torch_pjrt_convolution_backward, call_backward<Images::kChannelsLast>)
TPJRT_HANDLER(torch_pjrt_convolution_of_rows, call_forward<Images::kRows>)
TPJRT_HANDLER(torch_pjrt_convolution_backward_of_rows, call_backward<Images::kRows>)
