// Batch norm by ATen's kernels, for NHWC images.
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>

#include <array>

#include "kernels/cpu/handlers.h"
#include "kernels/cpu/output_forwarding.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/tensors.h"

namespace tpjrt::kernels {
namespace {

using Attributes = xla::ffi::Dictionary;

bool is_worth_a_team(const at::Tensor& images) { return images.numel() >= 1 << 16; }

// Operands: images, and the weight and bias of their channels. Results: images, and for each channel the mean, 1 /
// deviation and the unbiased variance. The variance comes from running statistics that start at zero with momentum 1.
void do_batch_norm(const Tensors& tensors, const Attributes& attributes) {
  const at::Tensor x = channels_last(tensors.operands.at(0));
  compute(is_worth_a_team(x), [&] {
    const c10::InferenceMode inference;
    at::Tensor y = channels_last(tensors.results.at(0)), mean = tensors.results.at(1), rstd = tensors.results.at(2);
    at::Tensor variance = tensors.results.at(3).zero_(), other_mean = at::zeros_like(variance);
    at::native_batch_norm_out(y, mean, rstd, x, tensors.operands.at(1), tensors.operands.at(2), other_mean, variance,
                              /*training=*/true, /*momentum=*/1, *attributes.get<double>("eps"));
  });
}

// Operands: the result's gradient, images, weight, mean and 1 / deviation. Results: the gradients of images, weight and
// bias.
void do_batch_norm_backward(const Tensors& tensors, const Attributes& attributes) {
  const at::Tensor dy = channels_last(tensors.operands.at(0)), x = channels_last(tensors.operands.at(1));
  compute(is_worth_a_team(x), [&] {
    const c10::InferenceMode inference;
    const at::Tensor place_of_dx = channels_last(tensors.results.at(0));
    const OutputForwarding place(place_of_dx);
    const auto [dx, dw, db] = at::native_batch_norm_backward(
        dy, x, tensors.operands.at(2), {}, {}, tensors.operands.at(3), tensors.operands.at(4), /*train=*/true,
        *attributes.get<double>("eps"), std::array<bool, 3>{true, true, true});
    place.give(dx);
    tensors.results.at(1).copy_(dw);
    tensors.results.at(2).copy_(db);
  });
}

}  // namespace

XLA_FFI_Error* batch_norm(XLA_FFI_CallFrame* frame) { return called<do_batch_norm>(frame); }
XLA_FFI_Error* batch_norm_backward(XLA_FFI_CallFrame* frame) { return called<do_batch_norm_backward>(frame); }

}  // namespace tpjrt::kernels
