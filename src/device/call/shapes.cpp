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
using Results = std::optional<torch::jit::Stack>;

at::Tensor tensor(const c10::IValue& value) { return value.isTensor() ? value.toTensor() : at::Tensor(); }

// Are all that are there of the first one's dtype, which is a floating one?
bool are_alike(std::initializer_list<at::Tensor> tensors) {
  const at::ScalarType dtype = tensors.begin()->scalar_type();
  return c10::isFloatingType(dtype) && std::ranges::all_of(tensors, [&](const at::Tensor& t) {
           return !t.defined() || (t.scalar_type() == dtype && t.is_meta());
         });
}

Results of(std::initializer_list<at::Tensor> tensors) { return torch::jit::Stack(tensors.begin(), tensors.end()); }

// A tensor of other memory, as a pointwise function's result lies.
Results pointwise(const at::Tensor& x) { return of({made_like(x, x.options())}); }

bool is_integer(const at::Tensor& x) { return c10::isIntegralType(x.scalar_type(), /*includeBool=*/false); }
bool is_index(const at::Tensor& x) { return x.scalar_type() == c10::kLong || x.scalar_type() == c10::kInt; }

at::Tensor contiguous_like(const at::Tensor& x) { return at::empty(x.sizes(), x.options()); }
at::Tensor statistic(const at::Tensor& x, c10::IntArrayRef sizes) {
  return at::empty(sizes, x.options().dtype(at::toOpMathType(x.scalar_type())));
}
bool has_sizes(const at::Tensor& x, c10::IntArrayRef sizes) { return !x.defined() || x.sizes() == sizes; }

// sum, mean: self, dtype
Results reduced(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  if (!are_alike({x}) || !a[1].isNone()) return {};
  return of({at::empty({}, x.options())});
}

// relu, abs: self
Results unary(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  return are_alike({x}) || is_integer(x) ? pointwise(x) : std::nullopt;
}

// zero_, fill_.Scalar: self, value
Results written(const Given& a) { return a.size() > 1 && a[1].isComplexDouble() ? std::nullopt : of({tensor(a[0])}); }

// zero, fill.Scalar: self, value
Results overwritten(const Given& a) {
  return a.size() > 1 && a[1].isComplexDouble() ? std::nullopt : pointwise(tensor(a[0]));
}

// add.Scalar, mul.Scalar, …: self, other
Results with_scalar(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  const bool floating = are_alike({x});
  if (!floating && !is_integer(x)) return {};
  for (size_t i = 1; i < a.size(); ++i) {  // an alpha, too
    if (!(a[i].isInt() || (floating && a[i].isDouble()))) return {};
  }
  return pointwise(x);
}

// div.Scalar: self, other
Results divided(const Given& a) { return are_alike({tensor(a[0])}) ? with_scalar(a) : std::nullopt; }

// max, min: self
Results extreme(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  if (x.numel() == 0 || x.is_complex()) return {};
  return of({at::empty({}, x.options())});
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
  return of({iterator.output()});
}

// masked_fill.Scalar, .Tensor: self, mask, value
Results masked_fill(const Given& a) {
  const at::Tensor x = tensor(a[0]), mask = tensor(a[1]), value = tensor(a[2]);
  if (mask.scalar_type() != c10::kBool || !mask.is_meta()) return {};
  if (are_alike({x})) {
    if (value.defined() ? value.dim() > 0 || value.is_complex() : a[2].isComplexDouble()) return {};
  } else if (!is_integer(x) || !a[2].isInt()) {
    return {};
  }
  return of({at::empty(at::infer_size(x.sizes(), mask.sizes()), x.options())});
}

// native_dropout: input, p, train
Results native_dropout(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  if (!are_alike({x})) return {};
  return of({made_like(x, x.options()), made_like(x, x.options().dtype(c10::kBool))});
}

// native_dropout_backward: grad_output, mask, scale
Results dropout_backward(const Given& a) { return are_alike({tensor(a[0])}) ? pointwise(tensor(a[0])) : std::nullopt; }

// index_select: self, dim, index
Results index_select(const Given& a) {
  const at::Tensor x = tensor(a[0]), index = tensor(a[2]);
  const int64_t dim = a[1].toInt() < 0 ? a[1].toInt() + x.dim() : a[1].toInt();
  if (!is_index(index) || index.dim() != 1 || dim < 0 || dim >= x.dim()) return {};
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[static_cast<size_t>(dim)] = index.numel();
  return of({at::empty(sizes, x.options())});
}

// embedding: weight, indices, padding_idx, scale_grad_by_freq, sparse
Results embedding(const Given& a) {
  const at::Tensor weight = tensor(a[0]), indices = tensor(a[1]);
  if (weight.dim() != 2 || !is_index(indices)) return {};
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  return of({at::empty(sizes, weight.options())});
}

// embedding_dense_backward: grad_output, indices, num_weights, padding_idx, scale_grad_by_freq
Results embedding_backward(const Given& a) {
  const at::Tensor dy = tensor(a[0]);
  if (dy.dim() == 0 || !is_index(tensor(a[1]))) return {};
  return of({at::empty({a[2].toInt(), dy.size(-1)}, dy.options())});
}

// linear: input, weight, bias
Results linear(const Given& a) {
  const at::Tensor x = tensor(a[0]), weight = tensor(a[1]), bias = tensor(a[2]);
  if (!are_alike({x, weight, bias}) || weight.dim() != 2 || x.dim() < 2 || !x.is_contiguous()) return {};
  if (x.size(-1) != weight.size(1) || !has_sizes(bias, {weight.size(0)})) return {};
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return of({at::empty(sizes, x.options())});
}

// linear_backward: self, grad_output, weight, output_mask
Results linear_backward(const Given& a) {
  const at::Tensor x = tensor(a[0]), dy = tensor(a[1]), weight = tensor(a[2]);
  if (!are_alike({x, dy, weight})) return {};
  for (const at::Tensor& operand : {x, dy, weight}) {
    if (operand.dim() < 2 || !operand.is_contiguous()) return {};
  }
  return of({contiguous_like(x), contiguous_like(weight), at::empty({weight.size(0)}, weight.options())});
}

// _foreach_<pointwise>: lists of tensors, numbers. In place, nothing is returned.
template <bool in_place>
Results foreach (const Given& a) {
  const auto first = a[0].toTensorList();
  for (const c10::IValue& argument : a) {
    if (argument.isTensor()) return {};
    if (!argument.isTensorList()) continue;
    const auto list = argument.toTensorList();
    if (list.size() != first.size()) return {};
    for (size_t i = 0; i < list.size(); ++i) {
      const at::Tensor x = first.get(i), y = list.get(i);
      if (!are_alike({x, y}) || x.sizes() != y.sizes() || x.strides() != y.strides()) return {};
    }
  }
  if (in_place) return torch::jit::Stack();
  c10::List<at::Tensor> results;
  for (size_t i = 0; i < first.size(); ++i) results.push_back(made_like(first.get(i), first.get(i).options()));
  return torch::jit::Stack{results};
}

// The integers from start to end, or nothing where that is not simple.
std::optional<int64_t> count(const c10::IValue& start, const c10::IValue& end, const c10::IValue& step) {
  if (!start.isInt() || !end.isInt() || !step.isInt()) return {};
  if (step.toInt() <= 0 || end.toInt() < start.toInt()) return {};
  return (end.toInt() - start.toInt() + step.toInt() - 1) / step.toInt();
}

// arange.start_step: start, end, step, dtype, layout, device, pin_memory
Results arange(const Given& a) {
  const auto n = count(a[0], a[1], a[2]);
  if (!n) return {};
  const auto dtype = a[3].isNone() ? c10::kLong : a[3].toScalarType();
  return of({at::empty({*n}, at::TensorOptions(c10::kMeta).dtype(dtype))});
}

// arange.start_out: start, end, step, out
Results arange_out(const Given& a) {
  const auto n = count(a[0], a[1], a[2]);
  const at::Tensor out = tensor(a[3]);
  if (!n || (out.numel() > 0 && !has_sizes(out, {*n}))) return {};
  if (!has_sizes(out, {*n})) out.unsafeGetTensorImpl()->set_sizes_contiguous({*n});
  return of({out});
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
  return of({contiguous_like(x), statistic(x, sizes), statistic(x, sizes)});
}

// The gradients of an input, which `x` is like, a weight and a bias of `sizes`, as the mask says.
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

// Of an input, a weight, a bias and running statistics.
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
  return of({contiguous_like(x), mean, made_like(mean, mean.options())});
}

// native_group_norm_backward: grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask
Results group_norm_backward(const Given& a) {
  const at::Tensor dy = tensor(a[0]), x = tensor(a[1]);
  if (!are_alike({x, dy, tensor(a[2]), tensor(a[3]), tensor(a[4])}) || dy.sizes() != x.sizes()) return {};
  return three_gradients(contiguous_like(x), {a[6].toInt()}, a[9]);
}

}  // namespace

ShapeFunction shape_function(const std::string& name) {
  static const auto& functions = *new std::unordered_map<std::string_view, ShapeFunction>{
      {"aten::sum", reduced},
      {"aten::mean", reduced},
      {"aten::relu", unary},
      {"aten::abs", unary},
      {"aten::zero", overwritten},
      {"aten::zero_", written},
      {"aten::fill.Scalar", overwritten},
      {"aten::fill_.Scalar", written},
      {"aten::add.Scalar", with_scalar},
      {"aten::sub.Scalar", with_scalar},
      {"aten::rsub.Scalar", with_scalar},
      {"aten::mul.Scalar", with_scalar},
      {"aten::remainder.Scalar", with_scalar},
      {"aten::div.Scalar", divided},
      {"aten::max", extreme},
      {"aten::min", extreme},
      {"aten::index_select", index_select},
      {"aten::embedding", embedding},
      {"aten::embedding_dense_backward", embedding_backward},
      {"aten::linear", linear},
      {"aten::linear_backward", linear_backward},
      {"aten::native_dropout_backward", dropout_backward},
      {"aten::arange.start_step", arange},
      {"aten::arange.start_out", arange_out},
      {"aten::where.self", where},
      {"aten::masked_fill.Scalar", masked_fill},
      {"aten::masked_fill.Tensor", masked_fill},
      {"aten::native_dropout", native_dropout},
      {"aten::_foreach_add.Scalar", foreach<false>},
      {"aten::_foreach_add_.Scalar", foreach<true>},
      {"aten::_foreach_add.List", foreach<false>},
      {"aten::_foreach_add_.List", foreach<true>},
      {"aten::_foreach_sub.Scalar", foreach<false>},
      {"aten::_foreach_sub_.Scalar", foreach<true>},
      {"aten::_foreach_sub.List", foreach<false>},
      {"aten::_foreach_sub_.List", foreach<true>},
      {"aten::_foreach_mul.Scalar", foreach<false>},
      {"aten::_foreach_mul_.Scalar", foreach<true>},
      {"aten::_foreach_mul.List", foreach<false>},
      {"aten::_foreach_mul_.List", foreach<true>},
      {"aten::_foreach_mul.ScalarList", foreach<false>},
      {"aten::_foreach_mul_.ScalarList", foreach<true>},
      {"aten::_foreach_div.Scalar", foreach<false>},
      {"aten::_foreach_div_.Scalar", foreach<true>},
      {"aten::_foreach_div.List", foreach<false>},
      {"aten::_foreach_div_.List", foreach<true>},
      {"aten::_foreach_div.ScalarList", foreach<false>},
      {"aten::_foreach_div_.ScalarList", foreach<true>},
      {"aten::_foreach_lerp.Scalar", foreach<false>},
      {"aten::_foreach_lerp_.Scalar", foreach<true>},
      {"aten::_foreach_lerp.List", foreach<false>},
      {"aten::_foreach_lerp_.List", foreach<true>},
      {"aten::_foreach_addcmul.Scalar", foreach<false>},
      {"aten::_foreach_addcmul_.Scalar", foreach<true>},
      {"aten::_foreach_addcmul.ScalarList", foreach<false>},
      {"aten::_foreach_addcmul_.ScalarList", foreach<true>},
      {"aten::_foreach_addcdiv.Scalar", foreach<false>},
      {"aten::_foreach_addcdiv_.Scalar", foreach<true>},
      {"aten::_foreach_addcdiv.ScalarList", foreach<false>},
      {"aten::_foreach_addcdiv_.ScalarList", foreach<true>},
      {"aten::_foreach_sqrt", foreach<false>},
      {"aten::_foreach_sqrt_", foreach<true>},
      {"aten::_foreach_neg", foreach<false>},
      {"aten::_foreach_neg_", foreach<true>},
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
  return found == functions.end() ? nullptr : found->second;
}

}  // namespace tpjrt::device
