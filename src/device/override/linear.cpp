// aten::linear and aten::linear_backward above the recorder.
//
// linear is an implicit composite. Its decomposition is t and addmm forward, and half a dozen calls backward, on
// which a model of small layers spends its time. PyTorch has a derivative for linear as one op (LinearBackward0,
// through linear_backward), which it uses on devices that have a kernel for it. That derivative supports real
// matrices and reverse mode only. Other calls are decomposed as on the CPU, and so are those of subclasses, which
// know only the ops of the decomposition (DTensor knows no linear_backward). functorch decomposes linear itself,
// above this kernel.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linear_backward.h>
#include <ATen/ops/linear_native.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "device/services/python_hooks.h"

namespace tpjrt::device {

namespace {

namespace autograd = torch::autograd;
using autograd::isFwGradDefined;

// Nodes are intrusively counted from torch 2.13 on.
using NodePtr = decltype(autograd::Edge::function);
template <class Backward, class Pointer = NodePtr>
std::pair<Backward*, Pointer> make_node() {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<autograd::Node>>) {
    auto* node = new Backward();
    return {node, Pointer(node, [](Backward* done) { deleteNode(done); })};
  } else {
    auto node = c10::make_intrusive<Backward>();
    Backward* address = node.get();
    return {address, Pointer(std::move(node))};
  }
}

// Returns whether LinearBackward0 is this call's derivative.
bool has_derivative(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  if (weight.dim() != 2 || weight.is_complex() || input.is_complex()) return false;
  const bool biased = bias && bias->defined();
  if (is_subclass(input) || is_subclass(weight) || (biased && is_subclass(*bias))) return false;
  if (biased && (bias->dim() != 1 || bias->sym_size(0) != weight.sym_size(0))) return false;
  return !isFwGradDefined(input) && !isFwGradDefined(weight) && !(biased && isFwGradDefined(bias));
}

at::Tensor linear(c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  if (!has_derivative(input, weight, bias)) return at::native::linear(input, weight, bias);
  autograd::generated::LinearBackward0* backward = nullptr;
  NodePtr node;
  if (autograd::compute_requires_grad(input, weight, bias)) {
    std::tie(backward, node) = make_node<autograd::generated::LinearBackward0>();
    backward->set_next_edges(autograd::collect_next_edges(input, weight, bias));
    if (backward->should_compute_output(1)) backward->input_ = autograd::SavedVariable(input, false);
    if (backward->should_compute_output(0)) backward->weight_ = autograd::SavedVariable(weight, false);
  }
  at::Tensor result;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    result = at::_ops::linear::redispatch(keys & c10::after_ADInplaceOrView_keyset, input, weight, bias);
  }
  if (node) autograd::set_history(result, node);
  return result;
}

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor rows(const at::Tensor& x) { return x.dim() == 1 ? x.unsqueeze(0) : x.flatten(0, -2); }

// Computes linear_backward in ops that can be differentiated and batched.
Gradients composite_backward(const at::Tensor& self, const at::Tensor& grad_output, const at::Tensor& weight,
                             std::array<bool, 3> output_mask) {
  Gradients result;
  if (output_mask[0]) std::get<0>(result) = grad_output.matmul(weight);
  if (output_mask[1]) std::get<1>(result) = rows(grad_output).t().matmul(rows(self));
  if (output_mask[2]) std::get<2>(result) = rows(grad_output).sum(0);
  return result;
}

// `self` is undefined if the weight needs no gradient, which linear_backward's Meta kernel doesn't accept.
Gradients linear_backward(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& grad_output,
                          const at::Tensor& weight, std::array<bool, 3> output_mask) {
  if (!self.defined() || autograd::compute_requires_grad(self, grad_output, weight) || isFwGradDefined(self) ||
      isFwGradDefined(grad_output) || isFwGradDefined(weight)) {
    return composite_backward(self, grad_output, weight, output_mask);
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  return at::_ops::linear_backward::redispatch(keys & c10::after_ADInplaceOrView_keyset, self, grad_output, weight,
                                               output_mask);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("linear", TORCH_FN(linear));
  m.impl("linear_backward", TORCH_FN(linear_backward));
}

// vmap over a backward (is_grads_batched) would otherwise run it once for each sample.
TORCH_LIBRARY_IMPL(aten, FuncTorchBatchedDecomposition, m) { m.impl("linear_backward", TORCH_FN(composite_backward)); }

}  // namespace

}  // namespace tpjrt::device
