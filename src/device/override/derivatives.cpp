// Ops whose derivatives PyTorch writes with nonzero, masked_select or unique, whose results' sizes depend on data and
// would go to the host. If such a derivative may be needed, the op is expressed by ops above autograd whose
// derivatives have none.
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/can_cast.h>
#include <ATen/ops/index_fill.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace tpjrt::device {
namespace {

// Replacements of compute_requires_grad and isFwGradDefined in autograd's own headers, which cost seconds of compile
// time.
bool requires_grad(const at::Tensor& x) { return c10::GradMode::is_enabled() && x.requires_grad(); }
bool has_tangent(const at::Tensor& x) { return x._fw_grad(/*level=*/0).defined(); }

// Returns the keys with which a call arrives at PyTorch's own autograd kernel.
c10::DispatchKeySet pytorchs_own(c10::DispatchKeySet keys) {
  return (keys & c10::after_autograd_keyset).add(c10::DispatchKey::AutogradOther);
}

// Returns whether the gradient of a filled value is needed. False for invalid calls, which PyTorch's kernels report.
bool differentiates(const at::Tensor& self, const at::Tensor& value) {
  return requires_grad(value) && value.dim() == 0 && at::can_cast(value.scalar_type(), self.scalar_type());
}

at::Tensor filled(const at::Tensor& self, const at::Tensor& mask, const at::Tensor& value) {
  // The CPU's result is contiguous, and so is its gradient.
  return at::where(mask.contiguous(), value.to(self.device(), self.scalar_type()), self);
}

at::Tensor masked_fill(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& mask,
                       const at::Tensor& value) {
  if (differentiates(self, value) && mask.scalar_type() == at::kBool) return filled(self, mask, value).contiguous();
  return at::_ops::masked_fill_Tensor::redispatch(pytorchs_own(keys), self, mask, value);
}

at::Tensor& masked_fill_(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& mask, const at::Tensor& value) {
  if (differentiates(self, value) && mask.scalar_type() == at::kBool &&
      at::is_expandable_to(mask.sym_sizes(), self.sym_sizes())) {
    return self.copy_(filled(self, mask, value));
  }
  return at::_ops::masked_fill__Tensor::redispatch(pytorchs_own(keys), self, mask, value);
}

// Returns the elements of self that index_fill writes to, with size 1 in the other dimensions.
at::Tensor places(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::SymDimVector sizes(static_cast<size_t>(self.dim()), 1);
  sizes[static_cast<size_t>(dim)] = self.sym_size(dim);
  return at::zeros_symint(sizes, self.options().dtype(at::kBool)).index_fill(dim, index, true);
}

at::Tensor index_fill(c10::DispatchKeySet keys, const at::Tensor& self, int64_t dim, const at::Tensor& index,
                      const at::Tensor& value) {
  if (differentiates(self, value) && self.dim() > 0) return filled(self, places(self, dim, index), value);
  return at::_ops::index_fill_int_Tensor::redispatch(pytorchs_own(keys), self, dim, index, value);
}

at::Tensor& index_fill_(c10::DispatchKeySet keys, at::Tensor& self, int64_t dim, const at::Tensor& index,
                        const at::Tensor& value) {
  if (differentiates(self, value) && self.dim() > 0) return self.copy_(filled(self, places(self, dim, index), value));
  return at::_ops::index_fill__int_Tensor::redispatch(pytorchs_own(keys), self, dim, index, value);
}

// Flattens in memory order, so that the gradient has the tensor's layout.
at::Tensor flattened(const at::Tensor& self) {
  if (!self.is_non_overlapping_and_dense()) return self.flatten();
  std::vector<int64_t> order(static_cast<size_t>(self.dim()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); });
  return self.permute(order).flatten();
}

// The derivative along a dimension reads whether there are zeros; the derivative over all elements also needs their
// positions.
at::Tensor prod(c10::DispatchKeySet keys, const at::Tensor& self, std::optional<at::ScalarType> dtype) {
  if (self.dim() > 0 && (requires_grad(self) || has_tangent(self))) {
    return at::prod(flattened(self), 0, /*keepdim=*/false, dtype);
  }
  return at::_ops::prod::redispatch(pytorchs_own(keys), self, dtype);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("masked_fill.Tensor", TORCH_FN(masked_fill));
  m.impl("masked_fill_.Tensor", TORCH_FN(masked_fill_));
  m.impl("index_fill.int_Tensor", TORCH_FN(index_fill));
  m.impl("index_fill_.int_Tensor", TORCH_FN(index_fill_));
  m.impl("prod", TORCH_FN(prod));
}

}  // namespace
}  // namespace tpjrt::device
