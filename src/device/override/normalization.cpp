// aten::group_norm of channels-last images, above autograd: the result and the gradient have the input's layout.
// PyTorch's own composite makes the input contiguous first on any device but the CPU. So does its derivative.
//
// aten::native_batch_norm.out: evaluation saves no statistics, and the CPU's kernel leaves their tensors unchanged,
// whatever their sizes. This kernel runs the functional op and copies its results.
//
// aten::_fused_moving_avg_obs_fq_helper, the observer of fake quantization: the first call with a range for each row
// resizes the observer's empty tensors, which the Meta kernel doesn't report.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/group_norm_native.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_group_norm.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <limits>

#include "device/aten_call/operator.h"
#include "device/record/recorder.h"

namespace tpjrt::device {

namespace {

bool is_by_channel(const std::optional<at::Tensor>& x, const c10::SymInt& channels) {
  return !x || !x->defined() || (x->dim() == 1 && x->sym_numel() == channels);
}

// Returns x through its elements in channels-last memory order, so that the gradient gets that order, too.
at::Tensor with_gradient_in_order(const at::Tensor& x) {
  const at::Tensor channels_last = x.movedim(1, -1);
  return channels_last.flatten().view_symint(channels_last.sym_sizes()).movedim(-1, 1);
}

at::Tensor group_norm(const at::Tensor& input, int64_t num_groups, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, double eps, bool cudnn_enabled) {
  const at::MemoryFormat format = input.suggest_memory_format();
  const bool is_last = format != at::MemoryFormat::Contiguous && num_groups > 0;
  // PyTorch reports invalid calls.
  if (!is_last || input.sym_size(1) % num_groups != 0 || !is_by_channel(weight, input.sym_size(1)) ||
      !is_by_channel(bias, input.sym_size(1))) {
    return at::native::group_norm(input, num_groups, weight, bias, eps, cudnn_enabled);
  }
  const c10::SymInt elements = c10::multiply_integers(input.sym_sizes().slice(2));
  at::Tensor x = input.contiguous(format);
  if (c10::GradMode::is_enabled() && x.requires_grad()) x = with_gradient_in_order(x);
  return std::get<0>(
      at::native_group_norm_symint(x, weight, bias, input.sym_size(0), input.sym_size(1), elements, num_groups, eps));
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("group_norm", TORCH_FN(group_norm)); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("group_norm", TORCH_FN(group_norm)); }

void check_dtype(const at::Tensor& out, const at::Tensor& result) {
  TORCH_CHECK(out.scalar_type() == result.scalar_type(), "expected scalar type ", result.scalar_type(), " but found ",
              out.scalar_type());
}

void put(at::Tensor& out, const at::Tensor& result) {
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
}

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&> native_batch_norm_out(
    const at::Tensor& input, const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& running_mean, const std::optional<at::Tensor>& running_var, bool training,
    double momentum, double eps, at::Tensor& out, at::Tensor& save_mean, at::Tensor& save_invstd) {
  const auto [y, mean, invstd] =
      at::native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
  check_dtype(out, y);
  check_dtype(save_mean, mean);
  check_dtype(save_invstd, invstd);
  put(out, y);
  if (training) {
    put(save_mean, mean);
    put(save_invstd, invstd);
  }
  return {out, save_mean, save_invstd};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("native_batch_norm.out", TORCH_FN(native_batch_norm_out)); }

void observe(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = Operator::of(handle);
  const c10::IValue* arguments = stack->data() + (stack->size() - op.arguments.size());
  const at::Tensor& running_min = arguments[3].toTensor();
  const bool per_row = arguments[11].toBool();
  if (per_row && running_min.numel() == 0) {
    const int64_t rows = arguments[0].toTensor().size(arguments[10].toInt());
    running_min.resize_({rows}).fill_(std::numeric_limits<float>::infinity());
    arguments[4].toTensor().resize_({rows}).fill_(-std::numeric_limits<float>::infinity());
    for (size_t i : {5, 6}) arguments[i].toTensor().resize_({rows});  // scale, zero_point
  }
  record(op, *stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_moving_avg_obs_fq_helper", torch::CppFunction::makeFromBoxedFunction<&observe>());
}

}  // namespace

}  // namespace tpjrt::device
