// aten::linear and aten::linear_backward above the recorder.
//
// linear is an implicit composite. Its decomposition is t and addmm forward, and half a dozen calls backward, on
// which a model of small layers spends its time. PyTorch has a derivative for linear as one op (LinearBackward0,
// through linear_backward), which it uses on devices that have a kernel for it. That derivative supports real
// matrices and reverse mode only. Other calls are decomposed as on the CPU, and so are those of subclasses, which
// know only the ops of the decomposition (DTensor knows no linear_backward). functorch decomposes linear itself,
// above this kernel.
//
// aten::_grouped_mm (torch.nn.functional.grouped_mm): products of the groups of a matrix's rows, columns or inner
// dimension, which `offs` ends, each with its own matrix: the experts of a mixture.
//
// It runs above the recorder, in ops that have rules: its Meta kernel accepts bfloat16 only, and the lengths of
// groups are data, where XLA needs shapes. Each group is therefore multiplied with everything, and the parts of other
// groups are masked, as in XLA's own expansion of a ragged dot. Rows outside of all groups are 0.
//
// aten::_convolution, which TorchScript's programs call where eager mode calls convolution; and convolution while
// torch.jit.trace records.
//
// The tracer records the _convolution in which PyTorch's kernel of convolution ends, not convolution itself. On this
// device the recorder handles convolution, so a traced call goes through _convolution. PyTorch's kernel of
// _convolution chooses among the libraries of its own devices, so on this device it calls convolution.
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_convolution.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/linear_backward.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/library.h>

#include <algorithm>

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

// Returns [groups, n]: whether position i of n is in the group.
at::Tensor membership(const at::Tensor& offs, int64_t n) {
  const at::Tensor position = at::arange(n, offs.options());
  const at::Tensor group = position.unsqueeze(1).ge(offs).sum(1);
  return group.eq(at::arange(offs.size(0), group.options()).unsqueeze(1));
}

at::Tensor only(const at::Tensor& chosen, const at::Tensor& x) { return at::where(chosen, x, 0); }

// Returns the rows of `rows` [n, k] times their group's matrix [groups, k, m].
at::Tensor rows_by_group(const at::Tensor& rows, const at::Tensor& matrices, const at::Tensor& offs) {
  const int64_t n = rows.size(0), k = rows.size(1), m = matrices.size(2), groups = matrices.size(0);
  const at::Tensor chosen = membership(offs, n);
  if (m <= k) return only(chosen.unsqueeze(2), at::matmul(rows, matrices)).sum(0);
  const at::Tensor apart = only(chosen.t().unsqueeze(2), rows.unsqueeze(1));  // [n, groups, k]: the smaller one
  return at::matmul(apart.reshape({n, groups * k}), matrices.reshape({groups * k, m}));
}

// Returns, for each group, the product of its columns of `a` [m, k] with its rows of `b` [k, n].
at::Tensor inner_by_group(const at::Tensor& a, const at::Tensor& b, const at::Tensor& offs) {
  const int64_t m = a.size(0), n = b.size(1), k = a.size(1), groups = offs.size(0);
  const at::Tensor chosen = membership(offs, k);
  const at::Tensor any = chosen.any(0);  // other positions may have any value, including NaN
  if (m > n) return inner_by_group(b.t(), a.t(), offs).transpose(1, 2);
  const at::Tensor apart = only(chosen.unsqueeze(1), a);  // [groups, m, k]
  return at::matmul(apart.reshape({groups * m, k}), only(any.unsqueeze(1), b)).reshape({groups, m, n});
}

void check(const at::Tensor& self, const at::Tensor& mat2, const std::optional<at::Tensor>& offs,
           const std::optional<at::Tensor>& bias) {
  const auto floats = {c10::kBFloat16, c10::kHalf, c10::kFloat};
  TORCH_CHECK(std::find(floats.begin(), floats.end(), self.scalar_type()) != floats.end(),
              "Expected mat_a to be Float32, BFloat16 or Float16 matrix, got ", self.scalar_type());
  TORCH_CHECK(self.scalar_type() == mat2.scalar_type(), "Expected mat_a and mat_b of one dtype, got ",
              self.scalar_type(), " and ", mat2.scalar_type());
  TORCH_CHECK(self.dim() == 2 || self.dim() == 3, "mat_a has to be 2 or 3d");
  TORCH_CHECK(mat2.dim() == 2 || mat2.dim() == 3, "mat_b has to be 2 or 3d");
  TORCH_CHECK(self.size(-1) == mat2.size(-2), "contraction dimension of mat_a and mat_b must match");
  const bool grouped = self.dim() == 2 || mat2.dim() == 2;
  TORCH_CHECK(offs.has_value() == grouped,
              "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d");
  TORCH_CHECK(!bias || !bias->defined(), "Bias not supported yet");
  if (!grouped) {
    TORCH_CHECK(self.size(0) == mat2.size(0), "batched dimension has to match");
    return;
  }
  TORCH_CHECK(offs->dim() == 1, "offs has to be 1D");
  TORCH_CHECK(offs->scalar_type() == c10::kInt, "Offsets have to be int32");
  const at::Tensor& batched = self.dim() == 3 ? self : mat2;
  TORCH_CHECK(batched.dim() == 2 || offs->size(0) == batched.size(0), "matrix batch sizes have to match");
}

at::Tensor grouped_mm(const at::Tensor& self, const at::Tensor& mat2, const std::optional<at::Tensor>& offs,
                      const std::optional<at::Tensor>& bias, std::optional<at::ScalarType> out_dtype) {
  check(self, mat2, offs, bias);
  at::Tensor result;
  if (!offs) {
    result = at::matmul(self, mat2);
  } else if (self.dim() == 2 && mat2.dim() == 3) {
    result = rows_by_group(self, mat2, *offs);
  } else if (self.dim() == 3) {
    result = rows_by_group(mat2.t(), self.transpose(1, 2), *offs).t();
  } else {
    result = inner_by_group(self, mat2, *offs);
  }
  return result.contiguous().to(out_dtype.value_or(self.scalar_type()));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_grouped_mm", TORCH_FN(grouped_mm)); }

using Sizes = c10::SymIntArrayRef;

at::Tensor _convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                        Sizes stride, Sizes padding, Sizes dilation, bool transposed, Sizes output_padding,
                        c10::SymInt groups, bool /*benchmark*/, bool /*deterministic*/, bool /*cudnn_enabled*/,
                        bool /*allow_tf32*/) {
  return at::convolution_symint(input, weight, bias, stride, padding, dilation, transposed, output_padding,
                                std::move(groups));
}

at::Tensor traced_convolution(c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& weight,
                              const std::optional<at::Tensor>& bias, Sizes stride, Sizes padding, Sizes dilation,
                              bool transposed, Sizes output_padding, c10::SymInt groups) {
  if (input.device().type() == c10::DeviceType::PrivateUse1) {
    const at::Context& context = at::globalContext();  // the values that PyTorch writes into a trace on its own devices
    return at::_convolution_symint(input, weight, bias, stride, padding, dilation, transposed, output_padding,
                                   std::move(groups), context.benchmarkCuDNN(), context.deterministicCuDNN(),
                                   context.userEnabledCuDNN(), /*allow_tf32=*/true);
  }
  const c10::DispatchKeySet after(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Tracer);
  return at::_ops::convolution::redispatch(keys & after, input, weight, bias, stride, padding, dilation, transposed,
                                           output_padding, std::move(groups));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_convolution", TORCH_FN(_convolution)); }

// Suppresses PyTorch's warning about replacing one of its kernels, which is intended here.
class Unheard final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

[[maybe_unused]] const bool registered = [] {
  Unheard unheard;
  const c10::WarningUtils::WarningHandlerGuard guard(&unheard);
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Tracer, __FILE__, __LINE__);
  library->impl("convolution", TORCH_FN(traced_convolution));
  return true;
}();

}  // namespace

}  // namespace tpjrt::device
