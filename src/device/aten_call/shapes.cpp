// See shapes.h. Each function replaces one of torch/_refs or torch/_decomp. Shape functions of normalizations, forward
// and backward.
#include "device/aten_call/shapes.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/empty_strided.h>

#include <cmath>

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

// mean: self, dtype
Results mean(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  if (!are_alike({x}) || !a[1].isNone()) return {};
  return of({at::empty({}, x.options())});
}

// sum: self, dtype
Results sum(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  if (!c10::isIntegralType(x.scalar_type(), /*includeBool=*/true)) return mean(a);
  return a[1].isNone() ? of({at::empty({}, x.options().dtype(c10::kLong))}) : std::nullopt;
}

// count_nonzero: self, dim
Results count_nonzero(const Given& a) {
  return a[1].isNone() ? of({at::empty({}, tensor(a[0]).options().dtype(c10::kLong))}) : std::nullopt;
}

at::Tensor reduced(const at::Tensor& x, std::vector<int64_t> dims, bool keepdim) {
  return at::empty(at::meta::get_reduction_shape(x, dims, keepdim), x.options());
}

// std.correction, var.correction: self, dim, correction, keepdim
template <int results>
Results deviation(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  if (!are_alike({x}) || x.numel() == 0) return {};
  const at::Tensor result = reduced(x, a[1].isNone() ? std::vector<int64_t>() : a[1].toIntVector(), a[3].toBool());
  const double correction = a[2].isNone() ? 1 : a[2].toScalar().toDouble();
  // PyTorch warns if there are fewer than two elements.
  if (result.numel() == 0 || static_cast<double>(x.numel()) / static_cast<double>(result.numel()) <= correction)
    return {};
  return results == 1 ? of({result}) : of({result, made_like(result, result.options())});
}

// logsumexp: self, dim, keepdim
Results logsumexp(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  return are_alike({x}) && x.numel() > 0 ? of({reduced(x, a[1].toIntVector(), a[2].toBool())}) : std::nullopt;
}

bool is_dim(const at::Tensor& x, int64_t dim) { return -x.dim() <= dim && dim < x.dim(); }

// sort: self, dim, descending
Results sorted(const at::Tensor& x, int64_t dim) {
  if (!is_dim(x, dim) || x.is_complex()) return {};
  return of({made_like(x, x.options()), made_like(x, x.options().dtype(c10::kLong))});
}
Results sort(const Given& a) { return sorted(tensor(a[0]), a[1].toInt()); }

// sort.stable: self, stable, dim, descending
Results sort_stable(const Given& a) { return sorted(tensor(a[0]), a[2].toInt()); }

// mv: self, vec
Results mv(const Given& a) {
  const at::Tensor x = tensor(a[0]), y = tensor(a[1]);
  if (!are_alike({x, y}) || x.dim() != 2 || !has_sizes(y, {x.size(1)})) return {};
  return of({at::empty({x.size(0)}, x.options())});
}

// dot: self, tensor
Results dot(const Given& a) {
  const at::Tensor x = tensor(a[0]), y = tensor(a[1]);
  if (!are_alike({x, y}) || x.dim() != 1 || x.sizes() != y.sizes()) return {};
  return of({at::empty({}, x.options())});
}

// stack: tensors, dim
Results stack(const Given& a) {
  const auto list = a[0].toTensorList();
  if (list.empty()) return {};
  const at::Tensor first = list.get(0);
  for (const at::Tensor& x : list) {
    if (!x.is_meta() || !x.is_contiguous() || x.scalar_type() != first.scalar_type() || !has_sizes(x, first.sizes())) {
      return {};
    }
  }
  const int64_t dim = a[1].toInt() < 0 ? a[1].toInt() + first.dim() + 1 : a[1].toInt();
  if (dim < 0 || dim > first.dim()) return {};
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes.insert(sizes.begin() + dim, static_cast<int64_t>(list.size()));
  return of({at::empty(sizes, first.options())});
}

// roll: self, shifts, dims
Results roll(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  const std::vector<int64_t> shifts = a[1].toIntVector(), dims = a[2].toIntVector();
  if (x.numel() == 0 || shifts.empty()) return {};
  if (dims.size() != shifts.size() && !(dims.empty() && shifts.size() == 1)) return {};
  if (!std::ranges::all_of(dims, [&](int64_t dim) { return is_dim(x, dim); })) return {};
  return of({contiguous_like(x)});
}

// _scaled_dot_product_fused_attention_overrideable: query, key, value, attn_bias, dropout_p, is_causal, …
Results attention(const Given& a) {
  const at::Tensor q = tensor(a[0]), k = tensor(a[1]), v = tensor(a[2]);
  if (!are_alike({q, k, v}) || q.dim() != 4 || k.dim() != 4 || v.dim() != 4 || v.size(3) != q.size(3)) return {};
  const at::TensorOptions seed = q.options().dtype(c10::kLong);
  torch::jit::Stack results;
  results.emplace_back(made_like(q, q.options()));
  results.emplace_back(at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(c10::kFloat)));
  results.emplace_back(at::Tensor());
  results.emplace_back(at::Tensor());
  results.emplace_back(q.size(2));
  results.emplace_back(k.size(2));
  results.emplace_back(at::empty({}, seed));
  results.emplace_back(at::empty({}, seed));
  results.emplace_back(at::Tensor());
  return results;
}

// max, min: self
Results extreme(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  if (x.numel() == 0 || x.is_complex()) return {};
  return of({at::empty({}, x.options())});
}

// index_select: self, dim, index
Results index_select(const Given& a) {
  const at::Tensor x = tensor(a[0]), index = tensor(a[2]);
  const int64_t dim = a[1].toInt() < 0 ? a[1].toInt() + x.dim() : a[1].toInt();
  if (!is_index(index) || index.dim() != 1 || dim < 0 || dim >= x.dim()) return {};
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[static_cast<size_t>(dim)] = index.numel();
  return of({at::empty(sizes, x.options())});
}

// index.Tensor: self, indices
Results index(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  const auto given = a[1].toOptionalTensorList();
  std::vector<int64_t> common, sizes;
  std::optional<size_t> first, last;
  size_t count = 0;
  for (size_t i = 0; i < given.size(); ++i) {
    const std::optional<at::Tensor> index = given.get(i);
    if (!index || !index->defined()) continue;
    TORCH_CHECK_NOT_IMPLEMENTED(index->scalar_type() != c10::kBool, "the result's shape depends on data");
    if (!is_index(*index) || !index->is_meta() || !index->is_contiguous()) return {};
    common = at::infer_size(common, index->sizes());
    first = first.value_or(i);
    last = i;
    ++count;
  }
  if (!first || *last >= static_cast<size_t>(x.dim()) || x.numel() == 0 || !x.is_contiguous()) return {};
  const size_t place = *last - *first + 1 == count ? *first : 0;  // in front, unless the indices are adjacent
  for (size_t i = 0; i < static_cast<size_t>(x.dim()); ++i) {
    const bool is_indexed = i < given.size() && given.get(i) && given.get(i)->defined();
    if (!is_indexed) sizes.push_back(x.size(static_cast<int64_t>(i)));
  }
  sizes.insert(sizes.begin() + static_cast<int64_t>(place), common.begin(), common.end());
  return of({at::empty(sizes, x.options())});
}

// nonzero_static: self, size, fill_value
Results nonzero_static(const Given& a) {
  const at::Tensor x = tensor(a[0]);
  if (a[1].toInt() < 0) return {};
  return of({at::empty({a[1].toInt(), x.dim()}, x.options().dtype(c10::kLong))});
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

// linear_backward: self, grad_output, weight (undefined if self needs no gradient), output_mask. Gradients are
// contiguous whatever the layouts of the operands (a sum's gradient is expanded).
Results linear_backward(const Given& a) {
  const at::Tensor x = tensor(a[0]), dy = tensor(a[1]);
  if (!are_alike({x, dy, tensor(a[2])}) || x.dim() < 2 || dy.dim() < 2) return {};
  const c10::List<bool> wanted = a[3].toBoolList();
  const int64_t out = dy.size(-1);
  return of({wanted[0] ? contiguous_like(x) : at::Tensor(),
             wanted[1] ? at::empty({out, x.size(-1)}, x.options()) : at::Tensor(),
             wanted[2] ? at::empty({out}, x.options()) : at::Tensor()});
}

// Returns the number of integers from start to end, or nothing in unusual cases.
std::optional<int64_t> count(const c10::IValue& start, const c10::IValue& end, const c10::IValue& step) {
  if (!start.isInt() || !end.isInt() || !step.isInt()) return {};
  if (step.toInt() <= 0 || end.toInt() < start.toInt()) return {};
  return (end.toInt() - start.toInt() + step.toInt() - 1) / step.toInt();
}

std::optional<int64_t> count_floating(const c10::IValue& start, const c10::IValue& end, const c10::IValue& step) {
  const double from = start.toScalar().toDouble(), to = end.toScalar().toDouble(), by = step.toScalar().toDouble();
  const double n = std::ceil((to - from) / by);
  if (by == 0 || !(n >= 0 && n < 1e15)) return {};
  return static_cast<int64_t>(n);
}

// arange.start_step: start, end, step, dtype, layout, device, pin_memory
Results arange(const Given& a) {
  const auto n = count(a[0], a[1], a[2]);
  if (!n) return {};
  const auto dtype = a[3].isNone() ? c10::kLong : a[3].toScalarType();
  return of({at::empty({*n}, at::TensorOptions(c10::kMeta).dtype(dtype))});
}

// Returns an out= that has the sizes, or that is empty and gets them.
Results resized(const at::Tensor& out, c10::IntArrayRef sizes) {
  if (has_sizes(out, sizes)) return of({out});
  if (out.numel() > 0) return {};
  out.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return of({out});
}

// arange.start_out: start, end, step, out
Results arange_out(const Given& a) {
  const at::Tensor out = tensor(a[3]);
  const auto n = are_alike({out}) ? count_floating(a[0], a[1], a[2]) : count(a[0], a[1], a[2]);
  return n ? resized(out, {*n}) : std::nullopt;
}

// eye.m_out: n, m, out
Results eye_out(const Given& a) {
  return a[0].toInt() >= 0 && a[1].toInt() >= 0 ? resized(tensor(a[2]), {a[0].toInt(), a[1].toInt()}) : std::nullopt;
}

}  // namespace

ShapeFunction shape_function(const std::string& name) {
  static const ShapeFunctions& functions = *[] {
    auto* all = new ShapeFunctions{
        {"aten::sum", sum},
        {"aten::mean", mean},
        {"aten::count_nonzero", count_nonzero},
        {"aten::std.correction", deviation<1>},
        {"aten::var.correction", deviation<1>},
        {"aten::std_mean.correction", deviation<2>},
        {"aten::var_mean.correction", deviation<2>},
        {"aten::logsumexp", logsumexp},
        {"aten::max", extreme},
        {"aten::min", extreme},
        {"aten::sort", sort},
        {"aten::sort.stable", sort_stable},
        {"aten::stack", stack},
        {"aten::roll", roll},
        {"aten::index.Tensor", index},
        {"aten::index_select", index_select},
        {"aten::nonzero_static", nonzero_static},
        {"aten::embedding", embedding},
        {"aten::embedding_dense_backward", embedding_backward},
        {"aten::dot", dot},
        {"aten::mv", mv},
        {"aten::linear", linear},
        {"aten::linear_backward", linear_backward},
        {"aten::_scaled_dot_product_fused_attention_overrideable", attention},
        {"aten::arange.start_step", arange},
        {"aten::arange.start_out", arange_out},
        {"aten::eye.m_out", eye_out},
    };
    add_pointwise(*all);
    add_norms(*all);
    return all;
  }();
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

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
