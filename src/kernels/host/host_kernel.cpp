// The table of host kernels; linear_backward, dropout, and PyTorch's fused attention for backends like this one.
#include "kernels/host/host_kernel.h"

#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <string>
#include <string_view>
#include <tuple>

namespace tpjrt::kernels {
namespace {

Tensors linear_backward(const HostArguments& call) {
  const at::Tensor x = call.tensor("self"), dy = call.tensor("grad_output"), weight = call.tensor("weight");
  const c10::IValue& mask = call.parameter("output_mask").constant;
  const auto wanted = [&](size_t i) { return mask.toBoolList().get(i); };
  const auto as_rows = [](const at::Tensor& t) { return t.dim() == 2 ? t : t.reshape({-1, t.size(-1)}); };
  const at::Tensor rows = as_rows(dy);
  Tensors grads(3);  // results that are not wanted are never read
  for (size_t i = 0; i < grads.size(); ++i) {
    const graph::TypePtr type = call.signature.results[i];
    if (type && !wanted(i)) grads[i] = at::zeros(type->sizes, dy.options());
  }
  if (wanted(0)) grads[0] = dy.dim() == 2 ? at::mm(dy, weight) : at::matmul(dy, weight);
  if (wanted(1)) grads[1] = at::mm(rows.t(), as_rows(x));
  if (wanted(2)) grads[2] = at::sum(rows, 0);
  return grads;
}

Tensors native_dropout(const HostArguments& call) {
  const at::Tensor x = call.tensor("input");
  const c10::IValue& train = call.parameter("train").constant;
  if (train.isBool() && !train.toBool()) {
    return {x.clone(), at::ones(x.sizes(), at::TensorOptions(c10::kCPU).dtype(c10::kBool))};
  }
  const double p = call.number("p");
  TORCH_CHECK(p >= 0 && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", 1 - p);
  RandomState state = call.state;
  const at::Tensor mask = random_chance(state, 1 - p, x.sizes());
  at::Tensor kept = mask.to(at::toOpMathType(x.scalar_type()));
  kept.mul_(p < 1 ? 1 / (1 - p) : 0);
  return {kept.mul_(x).to(x.scalar_type()), mask};  // dropped infinities and NaN become NaN
}

// Attention as in ops/contraction/attention.cpp. Query heads that share a key head have copies of it.
struct Attention {
  const HostArguments& call;
  at::Tensor query, key, value, bias;
  bool causal;
  int64_t group;  // query heads that share one key head
  double scale;

  explicit Attention(const HostArguments& arguments) : call(arguments), bias(call.tensor("attn_bias")) {
    query = in_rows(as_four(call.tensor("query")));
    key = in_rows(as_four(call.tensor("key")));
    value = in_rows(as_four(call.tensor("value")));
    group = query.size(1) / key.size(1);
    if (group > 1) {
      key = key.repeat_interleave(group, 1);
      value = value.repeat_interleave(group, 1);
    }
    causal = call.parameter("is_causal").constant.toBool();
    scale = call.optional_number("scale").value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
  }
  static at::Tensor as_four(const at::Tensor& x) { return x.dim() == 3 ? x.unsqueeze(0) : x; }
  // The CPU's fused kernels, forward and backward, assume rows are contiguous: they ignore the last stride.
  static at::Tensor in_rows(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }
  static at::Tensor wide(const at::Tensor& x) { return x.to(at::toOpMathType(x.scalar_type())); }

  double dropout() const { return call.number("dropout_p"); }
  // Returns whether the CPU's fused kernel takes the call. Its gradients differ for rows that are masked completely.
  bool is_flash() const {
    return dropout() == 0 && call.tensor("query").dim() == 4 && query.size(3) == value.size(3) && !bias.defined();
  }
  at::Tensor scores() const {
    at::Tensor s = at::matmul(wide(query), wide(key).transpose(2, 3)) * scale;
    if (causal) {
      s.masked_fill_(at::ones({s.size(2), s.size(3)}, s.options().dtype(c10::kBool)).triu(1), -INFINITY);
    }
    if (!bias.defined()) return s;
    return bias.scalar_type() == c10::kBool ? s.masked_fill_(bias.logical_not(), -INFINITY) : s + wide(bias);
  }
  // Returns 1 / (1 - p) where a probability is kept, else 0.
  at::Tensor kept(RandomState state, c10::IntArrayRef sizes) const {
    const at::Tensor uniform = random_uniform(state, c10::kFloat, sizes);
    return at::where(uniform < 1 - dropout(), at::full({}, 1 / (1 - dropout()), uniform.options()),
                     at::zeros({}, uniform.options()));
  }
  at::Tensor per_key_head(const at::Tensor& x) const {
    return group == 1 ? x : x.unflatten(1, {x.size(1) / group, group}).sum(2);
  }
};

at::Tensor one_for_zero(const at::Tensor& x) { return x.masked_fill(x == 0, 1); }

Tensors attention(const HostArguments& call) {
  const Attention a(call);
  const auto& types = call.signature.results;
  Tensors results;
  for (const graph::TypePtr type : types) {
    results.push_back(type ? at::zeros(type->sizes, at::TensorOptions(c10::kCPU).dtype(type->dtype)) : at::Tensor());
  }
  if (a.is_flash()) {
    std::tie(results[0], results[1]) =
        at::_scaled_dot_product_flash_attention_for_cpu(a.query, a.key, a.value, 0.0, a.causal, std::nullopt, a.scale);
    return results;
  }
  const at::Tensor s = a.scores();
  at::Tensor highest = s.amax(3, /*keepdim=*/true);
  highest.masked_fill_(highest == -INFINITY, 0);
  at::Tensor p = (s - highest).exp_();
  const at::Tensor sum = p.sum(3, /*keepdim=*/true);
  p.div_(one_for_zero(sum));
  if (a.dropout() > 0) {
    const RandomState state = call.state;
    p.mul_(a.kept(state, p.sizes()));
    size_t half = 0;  // the key's halves are the first two of the other results
    for (size_t i = 2; i < results.size() && half < state.size(); ++i) {
      if (results[i].defined()) results[i].fill_(static_cast<int64_t>(state[half++]));
    }
  }
  results[0] = at::matmul(p.to(a.value.scalar_type()), a.value).reshape(types[0]->sizes);
  results[1] = (highest + sum.log()).reshape(types[1]->sizes);
  return results;
}

Tensors attention_backward(const HostArguments& call) {
  const Attention a(call);
  const auto& types = call.signature.results;
  const at::Tensor dy = Attention::in_rows(Attention::as_four(call.tensor("grad_out")));
  const at::Tensor y = Attention::in_rows(Attention::as_four(call.tensor("out")));
  if (a.is_flash() && a.group == 1) {
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dy, a.query, a.key, a.value, y, call.tensor("logsumexp"), 0.0, a.causal, std::nullopt, a.scale);
    return {dq, dk, dv, {}};
  }
  at::Tensor logsumexp = Attention::wide(call.tensor("logsumexp")).reshape({a.query.size(0), a.query.size(1), -1, 1});
  logsumexp = logsumexp.masked_fill(logsumexp == -INFINITY, INFINITY);
  at::Tensor p = (a.scores() - logsumexp).exp_();
  if (a.bias.defined() && a.bias.scalar_type() != c10::kBool) p.div_(one_for_zero(p.sum(3, /*keepdim=*/true)));
  at::Tensor used = p, dp = at::matmul(Attention::wide(dy), Attention::wide(a.value).transpose(2, 3));
  if (a.dropout() > 0) {
    const RandomState state{static_cast<uint64_t>(call.tensor("philox_seed").item<int64_t>()),
                            static_cast<uint64_t>(call.tensor("philox_offset").item<int64_t>())};
    const at::Tensor kept = a.kept(state, p.sizes());
    used = p * kept;
    dp = dp * kept;
  }
  const at::Tensor rows = (Attention::wide(dy) * Attention::wide(y)).sum(3, /*keepdim=*/true);
  const at::Tensor ds = p * (dp - rows);
  const at::Tensor narrow = (ds * a.scale).to(a.query.scalar_type());
  Tensors grads(types.size());
  if (types[0]) grads[0] = at::matmul(narrow, a.key).reshape(types[0]->sizes);
  if (types[1]) grads[1] = a.per_key_head(at::matmul(narrow.transpose(2, 3), a.query)).reshape(types[1]->sizes);
  if (types[2]) {
    grads[2] = a.per_key_head(at::matmul(used.to(dy.scalar_type()).transpose(2, 3), dy)).reshape(types[2]->sizes);
  }
  if (types.size() > 3 && types[3]) grads[3] = at::sum_to(ds, types[3]->sizes).to(types[3]->dtype);
  return grads;
}

}  // namespace

HostKernel any_device_kernel(const graph::Signature& signature) {
  return signature.name == "aten::linear_backward" ? linear_backward : nullptr;
}

HostKernel host_kernel(const graph::Signature& signature) {
  if (const HostKernel kernel = any_device_kernel(signature)) return kernel;
  const std::string& name = signature.name;
  if (name == "aten::native_dropout") return native_dropout;
  if (name == "aten::_scaled_dot_product_fused_attention_overrideable") return attention;
  if (name == "aten::_scaled_dot_product_fused_attention_overrideable_backward") return attention_backward;
  if (const HostKernel kernel = corrected(signature)) return kernel;
  const HostKernel draw = pytorch_draw(signature);
  return draw ? draw : own_draw(signature);
}

}  // namespace tpjrt::kernels
