// See shapes.h. Each function stands for one of torch/_refs or torch/_decomp.
#include "device/call/shapes.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/result_type.h>

#include <algorithm>
#include <unordered_map>

namespace tpjrt::device {

at::Tensor made_like(const at::Tensor& x, const at::TensorOptions& options) {
  return at::empty_strided(
      x.sizes(), x.is_non_overlapping_and_dense() ? x.strides().vec() : at::infer_dense_strides(x.sizes(), x.strides()),
      options);
}

at::Tensor made_like(const at::Tensor& x, const at::TensorOptions& options, at::MemoryFormat format) {
  if (format == at::MemoryFormat::Preserve) return made_like(x, options);
  return at::empty(x.sizes(), options, format);
}

namespace {

using Given = torch::jit::Stack;
using Results = std::optional<std::vector<at::Tensor>>;

at::Tensor tensor(const c10::IValue& value) { return value.isTensor() ? value.toTensor() : at::Tensor(); }

// Are all that are there of the first one's dtype, which is a floating one?
bool are_alike(std::initializer_list<at::Tensor> tensors) {
  const at::ScalarType dtype = tensors.begin()->scalar_type();
  return c10::isFloatingType(dtype) && std::ranges::all_of(tensors, [&](const at::Tensor& t) {
           return !t.defined() || (t.scalar_type() == dtype && t.is_meta());
         });
}

at::Tensor contiguous_like(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }
at::Tensor statistic(const at::Tensor& x, c10::IntArrayRef sizes) {
  return at::empty(sizes, x.options().dtype(at::toOpMathType(x.scalar_type())));
}
bool has_sizes(const at::Tensor& x, c10::IntArrayRef sizes) { return !x.defined() || x.sizes() == sizes; }

// sum, mean: self, dtype
Results reduced(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  if (!are_alike({x}) || !a[1].isNone()) return {};
  return {{at::empty({}, x.options())}};
}

Results relu(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  if (!are_alike({x})) return {};
  at::Tensor out;
  const auto iterator = at::TensorIteratorConfig().add_owned_output(out).add_owned_const_input(x).build();
  return {{iterator.output()}};
}

// where.self: condition, self, other
Results where(const Given& a) {
  const at::Tensor condition = tensor(a[0]), x = tensor(a[1]), y = tensor(a[2]);
  for (const at::Tensor& operand : {condition, x, y}) {
    if (!operand.is_meta()) return {};
  }
  if (condition.scalar_type() != c10::kBool) return {};
  const auto iterator = at::TensorIteratorConfig()
                            .check_all_same_dtype(false)
                            .declare_static_dtype(at::result_type(x, y))
                            .add_owned_output(at::Tensor())
                            .add_owned_const_input(condition)
                            .add_owned_const_input(x)
                            .add_owned_const_input(y)
                            .build();
  return {{iterator.output()}};
}

// masked_fill.Scalar, .Tensor: self, mask, value
Results masked_fill(const Given& a) {
  const at::Tensor x = tensor(a[0]), mask = tensor(a[1]), value = tensor(a[2]);
  if (!are_alike({x}) || mask.scalar_type() != c10::kBool || !mask.is_meta()) return {};
  if (value.defined() ? value.dim() > 0 || value.is_complex() : a[2].isComplexDouble()) return {};
  return {{at::empty(at::infer_size(x.sizes(), mask.sizes()), x.options())}};
}

// native_dropout: input, p, train
Results native_dropout(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  if (!are_alike({x})) return {};
  return {{made_like(x, x.options()), made_like(x, x.options().dtype(c10::kBool))}};
}

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
  return {{contiguous_like(x), statistic(x, sizes), statistic(x, sizes)}};
}

// The gradients of an input, which `x` is like, a weight and a bias of `sizes`, as the mask says.
Results three_gradients(const at::Tensor& x, c10::IntArrayRef sizes, const c10::IValue& mask) {
  const auto wanted = mask.toBoolList();
  std::vector<at::Tensor> gradients(3);
  if (wanted.get(0)) gradients[0] = x;
  for (size_t i = 1; i < 3; ++i) {
    if (wanted.get(i)) gradients[i] = at::empty(sizes, x.options());
  }
  return {gradients};
}

// native_layer_norm_backward: grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask
Results layer_norm_backward(const Given& a) {
  const at::Tensor dy = tensor(a[0]), x = tensor(a[1]), weight = tensor(a[5]), bias = tensor(a[6]);
  if (!are_alike({x, dy, weight, bias}) || x.numel() == 0 || dy.sizes() != x.sizes()) return {};
  const auto wanted = a[7].toBoolList();
  if ((wanted.get(1) && !weight.defined()) || (wanted.get(2) && !bias.defined())) return {};
  return three_gradients(contiguous_like(x), a[2].toIntVector(), a[7]);
}

// Of an input, a weight, a bias and running statistics.
Results batch_norm(const at::Tensor& x, std::initializer_list<at::Tensor> others) {
  if (x.dim() < 2) return {};
  for (const at::Tensor& other : others) {
    if (!are_alike({x, other}) || !has_sizes(other, {x.size(1)})) return {};
  }
  return {{made_like(x, x.options()), statistic(x, {x.size(1)}), statistic(x, {x.size(1)})}};
}

// native_batch_norm, _native_batch_norm_legit: input, weight, bias, running_mean, running_var, training, momentum, eps
Results batch_norm_with_statistics(const Given& a) {
  if (!a[5].toBool() && !(a[3].isTensor() && a[4].isTensor())) return {};
  return batch_norm(tensor(a[0]), {tensor(a[1]), tensor(a[2]), tensor(a[3]), tensor(a[4])});
}

Results batch_norm_functional(const Given& a) {
  Results results = batch_norm_with_statistics(a);
  if (!results || !tensor(a[3]).defined() || !tensor(a[4]).defined()) return {};
  results->push_back(made_like(tensor(a[3]), tensor(a[3]).options()));
  results->push_back(made_like(tensor(a[4]), tensor(a[4]).options()));
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
  return {{contiguous_like(x), mean, made_like(mean, mean.options())}};
}

// native_group_norm_backward: grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask
Results group_norm_backward(const Given& a) {
  const at::Tensor dy = tensor(a[0]), x = tensor(a[1]);
  if (!are_alike({x, dy, tensor(a[2]), tensor(a[3]), tensor(a[4])}) || dy.sizes() != x.sizes()) return {};
  return three_gradients(contiguous_like(x), {a[6].toInt()}, a[9]);
}

}  // namespace

Results usual_results(const std::string& name, const Given& arguments) {
  static const auto& functions = *new std::unordered_map<std::string_view, Results (*)(const Given&)>{
      {"aten::sum", reduced},
      {"aten::mean", reduced},
      {"aten::relu", relu},
      {"aten::where.self", where},
      {"aten::masked_fill.Scalar", masked_fill},
      {"aten::masked_fill.Tensor", masked_fill},
      {"aten::native_dropout", native_dropout},
      {"aten::native_layer_norm", layer_norm},
      {"aten::native_layer_norm_backward", layer_norm_backward},
      {"aten::native_batch_norm", batch_norm_with_statistics},
      {"aten::_native_batch_norm_legit", batch_norm_with_statistics},
      {"aten::_native_batch_norm_legit_functional", batch_norm_functional},
      {"aten::native_batch_norm_backward", batch_norm_backward},
      {"aten::native_group_norm", group_norm},
      {"aten::native_group_norm_backward", group_norm_backward},
  };
  const auto found = functions.find(name);
  return found == functions.end() ? std::nullopt : found->second(arguments);
}

}  // namespace tpjrt::device
