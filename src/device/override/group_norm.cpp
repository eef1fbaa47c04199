// aten::group_norm of channels-last images, above autograd: the result and the gradient have the input's layout.
// PyTorch's own composite makes the input contiguous first on any device but the CPU. So does its derivative.
#include <ATen/core/Tensor.h>
#include <ATen/ops/group_norm_native.h>
#include <ATen/ops/native_group_norm.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

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

}  // namespace

}  // namespace tpjrt::device
