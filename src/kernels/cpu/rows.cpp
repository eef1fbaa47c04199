// Softmax, layer norm, sums and extremes of rows, by ATen's kernels. Batch norm by ATen's kernels, for NHWC images.
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/InferenceMode.h>

#include <array>
#include <optional>

#include "kernels/cpu/handlers.h"
#include "kernels/cpu/team.h"
#include "kernels/cpu/tensors.h"

namespace tpjrt::kernels {

namespace {

using RowAttributes = xla::ffi::Dictionary;

// Returns whether ATen would split the elements among several threads.
bool are_many(const at::Tensor& rows) { return rows.numel() > 1 << 15; }

// Operand: rows. Result: their softmax, or its logarithm.
void do_softmax(const Tensors& tensors, const RowAttributes& attributes) {
  const bool log = *attributes.get<bool>("log");
  const at::Tensor& x = tensors.operands.at(0);
  compute(are_many(x), [&] {
    const c10::InferenceMode inference;
    at::Tensor y = tensors.results.at(0);
    (log ? at::_log_softmax_out : at::_softmax_out)(y, x, 1, false);
  });
}

// Operands: the result's gradient, and the result. Result: the gradient of the rows.
void do_softmax_backward(const Tensors& tensors, const RowAttributes& attributes) {
  const bool log = *attributes.get<bool>("log");
  const at::Tensor &dy = tensors.operands.at(0), &y = tensors.operands.at(1);
  compute(are_many(y), [&] {
    const c10::InferenceMode inference;
    at::Tensor dx = tensors.results.at(0);
    if (log) {
      at::_log_softmax_backward_data_out(dx, dy, y, 1, y.scalar_type());
    } else {
      at::_softmax_backward_data_out(dx, dy, y, 1, y.scalar_type());
    }
  });
}

// Operands: rows, then weight and bias if there are any. Results: rows, and the mean and 1 / deviation of each.
void do_layer_norm(const Tensors& tensors, const RowAttributes& attributes) {
  const double eps = *attributes.get<double>("eps");
  const bool has_weight = *attributes.get<bool>("weight"), has_bias = *attributes.get<bool>("bias");
  const at::Tensor& x = tensors.operands.at(0);
  compute(are_many(x), [&] {
    const c10::InferenceMode inference;
    const at::Tensor weight = has_weight ? tensors.operands.at(1) : at::Tensor();
    const at::Tensor bias = has_bias ? tensors.operands.back() : at::Tensor();
    const OutputForwarding place(tensors.results.at(0));
    const auto [y, mean, rstd] = at::native_layer_norm(x, {x.size(1)}, weight, bias, eps);
    place.give(y);
    tensors.results.at(1).copy_(mean.view(-1));
    tensors.results.at(2).copy_(rstd.view(-1));
  });
}

// Operands: the result's gradient, rows, their mean and 1 / deviation, and then the weight if there is one. Results:
// the gradients of rows, weight and bias that are asked for. ATen reads the bias's sizes, which are the weight's.
void do_layer_norm_backward(const Tensors& tensors, const RowAttributes& attributes) {
  const bool has_weight = *attributes.get<bool>("weight");
  const std::array<bool, 3> asked{*attributes.get<bool>("of_rows"), *attributes.get<bool>("of_weight"),
                                  *attributes.get<bool>("of_bias")};
  const at::Tensor& x = tensors.operands.at(1);
  compute(are_many(x), [&] {
    const c10::InferenceMode inference;
    const at::Tensor weight = has_weight ? tensors.operands.at(4) : at::Tensor();
    const auto of_rows = [&](size_t i) { return tensors.operands.at(i).view({-1, 1}); };
    std::optional<OutputForwarding> place;
    if (asked[0]) place.emplace(tensors.results.at(0));
    const auto [dx, dw, db] = at::native_layer_norm_backward(tensors.operands.at(0), x, {x.size(1)}, of_rows(2),
                                                             of_rows(3), weight, weight, asked);
    size_t next = 0;
    if (asked[0]) place->give(dx), ++next;
    if (asked[1]) tensors.results.at(next++).copy_(dw);
    if (asked[2]) tensors.results.at(next++).copy_(db);
  });
}

// Operand: rows. Result: the sum of each row, or its mean, maximum or minimum.
void do_reduce_rows(const Tensors& tensors, const RowAttributes& attributes) {
  const auto op = *attributes.get<std::string_view>("op");
  const at::Tensor& x = tensors.operands.at(0);
  compute(are_many(x), [&] {
    const c10::InferenceMode inference;
    at::Tensor result = tensors.results.at(0);
    if (op == "add") {
      at::sum_out(result, x, 1);
    } else if (op == "mean") {
      at::mean_out(result, x, 1);
    } else if (op == "maximum") {
      at::amax_out(result, x, 1);
    } else {
      at::amin_out(result, x, 1);
    }
  });
}

}  // namespace

XLA_FFI_Error* softmax(XLA_FFI_CallFrame* frame) { return called<do_softmax>(frame); }
XLA_FFI_Error* softmax_backward(XLA_FFI_CallFrame* frame) { return called<do_softmax_backward>(frame); }
XLA_FFI_Error* layer_norm(XLA_FFI_CallFrame* frame) { return called<do_layer_norm>(frame); }
XLA_FFI_Error* layer_norm_backward(XLA_FFI_CallFrame* frame) { return called<do_layer_norm_backward>(frame); }
XLA_FFI_Error* reduce_rows(XLA_FFI_CallFrame* frame) { return called<do_reduce_rows>(frame); }

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
