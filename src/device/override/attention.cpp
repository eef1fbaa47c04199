// Chooses the implementation of scaled_dot_product_attention for tensors of this device: the fused operator, which
// has a rule (ops/contraction/attention.cpp), wherever the rule lowers the call; else PyTorch's own math.
//
// The choice depends on sizes and dtypes only, because fake tensors come here too. Subclasses get the decomposition,
// as with linear (linear.cpp). DTensor gets the operator, because it can't decompose a causal one: the mask is a
// plain tensor.
#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include "device/services/python_hooks.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

bool equal(const c10::SymInt& a, const c10::SymInt& b) { return TORCH_GUARD_OR_FALSE(a.sym_eq(b)); }

// The rule batches over the first two dimensions and broadcasts none of them, except heads that share a key head.
bool fits(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool grouped) {
  const int64_t rank = query.dim();
  if ((rank != 3 && rank != 4) || key.dim() != rank || value.dim() != rank) return false;
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    if (tensor->layout() != c10::kStrided || tensor->scalar_type() != query.scalar_type()) return false;
    for (const c10::SymInt& size : tensor->sym_sizes()) {
      if (equal(size, 0)) return false;
    }
  }
  const auto q = query.sym_sizes(), k = key.sym_sizes(), v = value.sym_sizes();
  const auto at = [rank](int64_t i) { return static_cast<size_t>(rank + i); };
  if (rank == 4 && !(equal(q[0], k[0]) && equal(q[0], v[0]))) return false;
  if (!equal(k[at(-3)], v[at(-3)]) || !equal(k[at(-2)], v[at(-2)]) || !equal(q[at(-1)], k[at(-1)])) return false;
  return equal(q[at(-3)], k[at(-3)]) || (grouped && equal(q[at(-3)] % k[at(-3)], 0));
}

// Returns whether the mask broadcasts to the scores. Other masks are errors, which PyTorch's math reports.
bool broadcasts(const at::Tensor& mask, const at::Tensor& query, const at::Tensor& key) {
  c10::SymDimVector scores(query.sym_sizes());
  scores.back() = key.sym_size(-2);
  if (mask.dim() > query.dim()) return false;
  for (int64_t i = 1; i <= mask.dim(); ++i) {
    const c10::SymInt size = mask.sym_size(-i), &of_scores = scores[scores.size() - static_cast<size_t>(i)];
    if (TORCH_GUARD_OR_FALSE(size.sym_ne(of_scores)) && TORCH_GUARD_OR_FALSE(size.sym_ne(1))) return false;
  }
  return true;
}

bool knows_parts_only(const at::Tensor& tensor) { return subclass_of(tensor) == Subclass::kOther; }

int64_t choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>& mask, double dropout, bool causal, std::optional<double> /*scale*/,
               bool grouped) {
  // The rule's log-sum-exp is float32: float64 would lose half its digits in backward.
  const c10::ScalarType dtype = query.scalar_type();
  const bool dtype_fits = dtype == c10::kFloat || dtype == c10::kHalf || dtype == c10::kBFloat16;
  const bool apart =
      knows_parts_only(query) || knows_parts_only(key) || knows_parts_only(value) || (mask && knows_parts_only(*mask));
  const bool fused = !apart && at::globalContext().userEnabledOverrideableSDP() && dtype_fits && !(causal && mask) &&
                     dropout < 1 && fits(query, key, value, grouped) && (!mask || broadcasts(*mask, query, key));
  return static_cast<int64_t>(fused ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", TORCH_FN(choice)); }

}  // namespace
}  // namespace tpjrt::device

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &tpjrt::device::choice)
}
