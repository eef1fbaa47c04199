// Corrected calls: remainders of large quotients, embedding bags, products of float8.
#include "kernels/host/host_kernel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_embedding_bag.h>
#include <ATen/ops/_embedding_bag_dense_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace tpjrt::kernels {
namespace {

using graph::Parameter;

bool has_nan(const at::Tensor& x) {
  const at::Tensor dense = x.contiguous();
  const auto any = [&](const auto* data) {
    bool found = false;
    for (int64_t i = 0; i < dense.numel(); ++i) found |= data[i] != data[i];
    return found;
  };
  return dense.scalar_type() == c10::kDouble ? any(dense.const_data_ptr<double>()) : any(dense.const_data_ptr<float>());
}

// Returns a tensor argument, or the scalar in its place, in the result's dtype.
at::Tensor divided(const HostArguments& call, std::string_view name) {
  const Parameter& p = call.parameter(name);
  if (const at::Tensor x = call.tensor(name); x.defined()) return x;
  const c10::Scalar number = p.kind == Parameter::Kind::kTensor   ? call.scalars[p.entries.at(0).index].scalar()
                             : p.kind == Parameter::Kind::kScalar ? call.scalars[p.first].scalar()
                                                                  : p.constant.toScalar();
  const at::Tensor given = at::scalar_tensor(number, at::TensorOptions(c10::kCPU).dtype(number.type()));
  return given.to(call.signature.results[0]->dtype);  // infinity if it is too large, which Scalar refuses
}

// Returns the remainder where the quotient is beyond the dtype, for which the vectorized kernels give NaN. Dividing
// by a multiple of the divisor leaves the remainder unchanged, and each of these quotients is within float64.
at::Tensor remainder_beyond(const at::Tensor& x, const at::Tensor& by) {
  constexpr double kStep = 0x1p700;
  const at::Tensor divisor = by.to(c10::kDouble);
  const at::Tensor left = at::fmod(x.to(c10::kDouble), divisor * kStep * kStep);
  return at::fmod(at::fmod(left, divisor * kStep), divisor);
}

at::Tensor mended(const at::Tensor& result, const at::Tensor& exact) {
  return at::where(result.isnan() & (exact == exact), exact.to(result.scalar_type()), result);
}

Tensors fmod(const HostArguments& call) {
  const at::Tensor x = divided(call, "self"), by = divided(call, "other");
  const at::Tensor result = at::fmod(x, by);
  if (!has_nan(result)) return {result};
  return {mended(result, remainder_beyond(x, by))};
}

Tensors remainder(const HostArguments& call) {
  const at::Tensor x = divided(call, "self"), by = divided(call, "other");
  const at::Tensor result = at::remainder(x, by);
  if (!has_nan(result)) return {result};
  const at::Tensor left = remainder_beyond(x, by);
  return {mended(result, at::where((left != 0) & ((left < 0) != (by < 0)), left + by, left))};
}

// Returns whether operands and result have one dtype that the vectorized kernels compute in.
bool is_of_vectors(const graph::Signature& s) {
  const c10::ScalarType dtype = s.results.at(0)->dtype;
  return (dtype == c10::kFloat || dtype == c10::kDouble) &&
         std::ranges::all_of(s.operands, [&](graph::TypePtr type) { return type->dtype == dtype; });
}

// Returns each index's bag.
at::Tensor bags_of(const at::Tensor& offsets, int64_t indices) {
  const at::Tensor places = at::arange(indices, offsets.options());
  const bool narrow = offsets.scalar_type() == c10::kInt;
  return at::searchsorted(offsets, places, narrow, /*right=*/true).sub_(1);
}

constexpr int64_t kSum = 0, kMean = 1;

// The kernel omits results that it doesn't need, or leaves them uninitialized.
Tensors embedding_bag(const HostArguments& call) {
  const at::Tensor weight = call.tensor("weight"), offsets = call.tensor("offsets");
  const at::Tensor indices = call.tensor("indices").reshape(-1);
  const int64_t mode = call.integer("mode"), padding = call.integer("padding_idx");
  auto [rows, bag, size, maximum] =
      at::_embedding_bag(weight, indices, offsets, call.flag("scale_grad_by_freq"), mode, call.flag("sparse"),
                         call.tensor("per_sample_weights"), call.flag("include_last_offset"), padding);
  const auto& types = call.signature.results;
  if (bag.numel() != indices.numel()) bag = bags_of(offsets, indices.numel());
  if (mode == kSum) {
    at::Tensor counted = at::ones({indices.numel()}, size.options());
    if (padding >= 0) counted.masked_fill_(indices == padding, 0);
    size = at::zeros(types[2]->sizes, size.options()).index_add_(0, bag, counted);
  }
  size = at::constant_pad_nd(size, {0, types[2]->sizes[0] - size.numel()});
  if (maximum.sizes() != c10::IntArrayRef(types[3]->sizes)) maximum = at::zeros(types[3]->sizes, maximum.options());
  return {rows, bag, size, maximum};
}

// The kernel divides by the frequency of the wrong index. The rows are therefore weighted by frequency here, and
// summed.
Tensors embedding_bag_backward(const HostArguments& call) {
  const at::Tensor grad = call.tensor("grad"), size = call.tensor("bag_size");
  const at::Tensor indices = call.tensor("indices").reshape(-1);
  const int64_t rows = call.integer("num_weights");
  at::Tensor bag = call.tensor("offset2bag"), weights = call.tensor("per_sample_weights");
  int64_t mode = call.integer("mode");
  if (bag.numel() != indices.numel()) bag = bags_of(call.tensor("offsets"), indices.numel());
  if (call.flag("scale_grad_by_freq") && indices.numel() > 0) {
    at::Tensor often = at::bincount(indices).index_select(0, indices);
    if (mode == kMean) often.mul_(size.index_select(0, bag).clamp_min(1));
    weights = weights.defined() ? weights / often : often.to(grad.scalar_type()).reciprocal_();
    mode = kSum;
  }
  return {at::_embedding_bag_dense_backward(grad.contiguous(), indices, bag, size, call.tensor("maximum_indices"), rows,
                                            /*scale_grad_by_freq=*/false, mode, weights, call.integer("padding_idx"))};
}

// The kernel's results beyond float8's range differ: NaN on processors with AMX, the largest number on others.
at::Tensor scaled_product(const HostArguments& call, const at::Tensor& scale_a, const at::Tensor& scale_b) {
  const auto wide = [](const at::Tensor& x) { return x.to(c10::kFloat); };
  at::Tensor product = at::mm(wide(call.tensor("self")), wide(call.tensor("mat2")));
  product.mul_(wide(scale_a)).mul_(wide(scale_b));
  if (const at::Tensor bias = call.tensor("bias"); bias.defined()) product.add_(wide(bias));
  return product;
}

// Computes scales of whole matrices, or of rows and columns; the program computes the others.
Tensors scaled_mm(const HostArguments& call) {
  const at::Tensor a = call.tensor("scale_a"), b = call.tensor("scale_b");
  const int64_t m = call.tensor("self").size(0), n = call.tensor("mat2").size(1);
  const bool of_rows = a.sizes() == c10::IntArrayRef{m, 1} && b.sizes() == c10::IntArrayRef{1, n};
  TORCH_CHECK(a.scalar_type() == c10::kFloat && ((a.numel() == 1 && b.numel() == 1) || of_rows), "scales of blocks");
  const bool is_one = !of_rows;
  at::Tensor product = scaled_product(call, is_one ? a.reshape({}) : a, is_one ? b.reshape({}) : b);
  const c10::ScalarType dtype = call.signature.results[0]->dtype;
  const at::Tensor scale = call.tensor("scale_result");
  if (scale.defined() && call.has("out_dtype") && c10::elementSize(dtype) == 1) product.div_(scale.to(c10::kFloat));
  return {product.to(dtype)};
}

// Likewise; an argument says what scales apply to, 0 or 1.
Tensors scaled_mm_v2(const HostArguments& call) {
  const std::vector<int64_t> of_a = call.constant("recipe_a").toIntVector();
  TORCH_CHECK(of_a.size() == 1 && of_a[0] <= 1 && of_a == call.constant("recipe_b").toIntVector(), "scales of blocks");
  const at::Tensor a = call.tensors("scale_a").at(0), b = call.tensors("scale_b").at(0);
  const bool is_one = of_a[0] == 0;
  const at::Tensor product = scaled_product(call, a.reshape(is_one ? c10::IntArrayRef{} : c10::IntArrayRef{-1, 1}),
                                            b.reshape(is_one ? c10::IntArrayRef{} : c10::IntArrayRef{1, -1}));
  return {product.to(call.signature.results[0]->dtype)};
}

}  // namespace

HostKernel corrected(const graph::Signature& signature) {
  const std::string& name = signature.name;
  for (const char* variant : {".Tensor", ".Scalar", "_.Tensor", "_.Scalar"}) {
    if (name == std::string("aten::fmod") + variant) return is_of_vectors(signature) ? fmod : nullptr;
    if (name == std::string("aten::remainder") + variant) return is_of_vectors(signature) ? remainder : nullptr;
  }
  if (name == "aten::_embedding_bag" || name == "aten::_embedding_bag_forward_only") return embedding_bag;
  if (name == "aten::_embedding_bag_backward" || name == "aten::_embedding_bag_dense_backward") {
    return embedding_bag_backward;
  }
  if (name == "aten::remainder.Scalar_Tensor") return is_of_vectors(signature) ? remainder : nullptr;
  if (name == "aten::_scaled_mm_v2") return scaled_mm_v2;
  return name == "aten::_scaled_mm" ? scaled_mm : nullptr;
}

}  // namespace tpjrt::kernels
