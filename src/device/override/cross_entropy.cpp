// aten::cross_entropy_loss with class weights, smoothed labels and a mean, above autograd.
//
// PyTorch decomposes it, and sums up the weights of the targets that count by masked_select, whose result's size
// depends on data and would go to the host. With a dispatch mode it masks them instead. This kernel does the same, in
// ops that autograd sees. PyTorch's own kernel decomposes other calls.
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss_native.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss_nd.h>
#include <torch/library.h>

namespace tpjrt::device {

namespace {

at::Tensor smoothed_mean(const at::Tensor& self, const at::Tensor& target, const at::Tensor& weight,
                         const c10::SymInt& ignore_index, double label_smoothing) {
  const int64_t class_dim = self.dim() == 1 ? 0 : 1;
  const at::Tensor scores = at::log_softmax(self, class_dim, self.scalar_type());
  const at::Tensor of_targets = at::nll_loss_nd_symint(scores, target, weight, at::Reduction::Mean, ignore_index);
  const at::Tensor ignored = target == at::Scalar(ignore_index);
  at::SymDimVector along_classes(static_cast<size_t>(self.dim()), 1);
  along_classes[static_cast<size_t>(class_dim)] = weight.sym_size(0);
  const at::Tensor of_classes = -(scores * weight.view_symint(along_classes)).sum(class_dim).masked_fill(ignored, 0);
  const at::Tensor weights =
      weight.gather(0, target.masked_fill(ignored, 0).flatten()).masked_fill(ignored.flatten(), 0);
  const auto classes = static_cast<double>(self.sym_size(class_dim).guard_int(__FILE__, __LINE__));
  return (1 - label_smoothing) * of_targets + label_smoothing / classes * (of_classes.sum() / weights.sum());
}

at::Tensor cross_entropy_loss(const at::Tensor& self, const at::Tensor& target, const std::optional<at::Tensor>& weight,
                              int64_t reduction, c10::SymInt ignore_index, double label_smoothing) {
  const bool has_classes = self.sym_sizes() != target.sym_sizes();  // otherwise targets are probabilities
  const bool smooths = label_smoothing > 0 && label_smoothing <= 1;
  if (has_classes && smooths && reduction == at::Reduction::Mean && weight && weight->defined()) {
    return smoothed_mean(self, target, *weight, ignore_index, label_smoothing);
  }
  return at::native::cross_entropy_loss_symint(self, target, weight, reduction, std::move(ignore_index),
                                               label_smoothing);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("cross_entropy_loss", TORCH_FN(cross_entropy_loss)); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("cross_entropy_loss", TORCH_FN(cross_entropy_loss)); }

}  // namespace

}  // namespace tpjrt::device
