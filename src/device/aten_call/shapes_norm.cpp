// Shape functions of normalizations, forward and backward.
#include "device/aten_call/shape_functions.h"

namespace tpjrt::device {
namespace {

// native_layer_norm: input, normalized_shape, weight, bias, eps
Results layer_norm(const Given& a) {
  const at::Tensor x = tensor(a[0]), weight = tensor(a[2]), bias = tensor(a[3]);
  const std::vector<int64_t> inner = a[1].toIntVector();
  if (!are_alike({x, weight, bias}) || inner.empty() || x.dim() < static_cast<int64_t>(inner.size())) return {};
  const size_t outer = static_cast<size_t>(x.dim()) - inner.size();
  if (x.sizes().slice(outer) != c10::IntArrayRef(inner) || !has_sizes(weight, inner) || !has_sizes(bias, inner)) {
    return {};
  }
  std::vector<int64_t> sizes = x.sizes().vec();
  std::fill(sizes.begin() + static_cast<int64_t>(outer), sizes.end(), 1);
  return of({contiguous_like(x), statistic(x, sizes), statistic(x, sizes)});
}

// Returns the gradients of an input, which `x` is like, and of a weight and a bias of `sizes`, as the mask says.
Results three_gradients(const at::Tensor& x, c10::IntArrayRef sizes, const c10::IValue& mask) {
  const auto wanted = mask.toBoolList();
  torch::jit::Stack gradients(3, at::Tensor());
  if (wanted.get(0)) gradients[0] = x;
  for (size_t i = 1; i < 3; ++i) {
    if (wanted.get(i)) gradients[i] = at::empty(sizes, x.options());
  }
  return gradients;
}

// native_layer_norm_backward: grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask
Results layer_norm_backward(const Given& a) {
  const at::Tensor dy = tensor(a[0]), x = tensor(a[1]), weight = tensor(a[5]), bias = tensor(a[6]);
  if (!are_alike({x, dy, weight, bias}) || x.numel() == 0 || dy.sizes() != x.sizes()) return {};
  const auto wanted = a[7].toBoolList();
  if ((wanted.get(1) && !weight.defined()) || (wanted.get(2) && !bias.defined())) return {};
  return three_gradients(contiguous_like(x), a[2].toIntVector(), a[7]);
}

// Returns the results for an input, a weight, a bias and running statistics.
Results batch_norm(const at::Tensor& x, std::initializer_list<at::Tensor> others) {
  if (x.dim() < 2) return {};
  for (const at::Tensor& other : others) {
    if (!are_alike({x, other}) || !has_sizes(other, {x.size(1)})) return {};
  }
  return of({made_like(x, x.options()), statistic(x, {x.size(1)}), statistic(x, {x.size(1)})});
}

// native_batch_norm, _native_batch_norm_legit: input, weight, bias, running_mean, running_var, training, momentum, eps
Results batch_norm_with_statistics(const Given& a) {
  if (!a[5].toBool() && !(a[3].isTensor() && a[4].isTensor())) return {};
  return batch_norm(tensor(a[0]), {tensor(a[1]), tensor(a[2]), tensor(a[3]), tensor(a[4])});
}

Results batch_norm_functional(const Given& a) {
  Results results = batch_norm_with_statistics(a);
  if (!results || !tensor(a[3]).defined() || !tensor(a[4]).defined()) return {};
  results->emplace_back(made_like(tensor(a[3]), tensor(a[3]).options()));
  results->emplace_back(made_like(tensor(a[4]), tensor(a[4]).options()));
  return results;
}

// native_batch_norm_backward: grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps,
// output_mask
Results batch_norm_backward(const Given& a) {
  const at::Tensor dy = tensor(a[0]), x = tensor(a[1]);
  if (!are_alike({x, dy, tensor(a[2])}) || x.dim() < 2 || dy.sizes() != x.sizes()) return {};
  if (!a[7].toBool() && !(a[3].isTensor() && a[4].isTensor())) return {};
  return three_gradients(made_like(x, x.options()), {x.size(1)}, a[9]);
}

// native_group_norm: input, weight, bias, N, C, HxW, group, eps
Results group_norm(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  const int64_t n = a[3].toInt(), channels = a[4].toInt(), groups = a[6].toInt();
  if (!are_alike({x, tensor(a[1]), tensor(a[2])}) || x.dim() < 2 || groups <= 0 || channels % groups != 0 ||
      x.numel() != n * channels * a[5].toInt()) {
    return {};
  }
  const at::Tensor mean = at::empty({n, groups}, x.options());
  return of({made_like(x, x.options(), x.suggest_memory_format()), mean, made_like(mean, mean.options())});
}

// native_group_norm_backward: grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask
Results group_norm_backward(const Given& a) {
  const at::Tensor dy = tensor(a[0]), x = tensor(a[1]);
  if (!are_alike({x, dy, tensor(a[2]), tensor(a[3]), tensor(a[4])}) || dy.sizes() != x.sizes()) return {};
  return three_gradients(made_like(x, x.options(), x.suggest_memory_format()), {a[6].toInt()}, a[9]);
}

}  // namespace

void add_norms(ShapeFunctions& functions) {
  functions.insert({
      {"aten::native_layer_norm", layer_norm},
      {"aten::native_layer_norm_backward", layer_norm_backward},
      {"aten::native_batch_norm", batch_norm_with_statistics},
      {"aten::_native_batch_norm_legit", batch_norm_with_statistics},
      {"aten::_native_batch_norm_legit_functional", batch_norm_functional},
      {"aten::native_batch_norm_backward", batch_norm_backward},
      {"aten::native_group_norm", group_norm},
      {"aten::native_group_norm_backward", group_norm_backward},
  });
}

}  // namespace tpjrt::device
