// Scaled dot product attention, forward and backward: torch's fused operator for backends like this one, and the
// CPU's and CUDA's, which graphs hold that were captured from such tensors.
//
// Scores and softmax are f32 for half types; the probabilities are rounded to the values' dtype for the second
// product, as fused kernels do. A row that is masked completely gives 0 and has logsumexp -inf.
#include <cmath>
#include <string>

#include "ops/claims/claims.h"
#include "ops/creation/draw.h"
#include "ops/rule/expression.h"
#include "ops/rule/precision.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace {

// A call's tensors as [B, heads of k, rows, width]: query heads that share a key head are rows of one matrix.
struct Attention {
  Emit& e;
  const Call& c;
  Value query, key, value;
  int64_t batch, heads, queries, keys;  // heads of q
  ElementType element;                  // of scores
  double scale;

  Attention(Emit& emit, const Call& call)
      : e(emit), c(call), query(call.tensor("query")), key(call.tensor("key")), value(call.tensor("value")) {
    if (query.rank() != 3 && query.rank() != 4) throw Unsupported("attention of tensors with these dimensions");
    auto four = [&](const Value& x) { return x.rank() == 3 ? e.unsqueeze(x, 0) : x; };
    query = four(query);
    key = four(key);
    value = four(value);
    batch = query.dim(0);
    heads = query.dim(1);
    queries = query.dim(2);
    keys = key.dim(2);
    const bool matching = key.rank() == 4 && value.rank() == 4 && key.dim(0) == batch && value.dim(0) == batch &&
                          key.dim(1) == value.dim(1) && value.dim(2) == keys && key.dim(3) == query.dim(3);
    if (!matching || (key.dim(1) == 0 ? heads != 0 : heads % key.dim(1) != 0)) {
      throw Unsupported("attention whose query, key and value don't match in size");
    }
    element = Emit::compute_element(query.element());
    scale = c.optional_real("scale").value_or(1 / std::sqrt(static_cast<double>(query.dim(3))));
  }

  Dims score_dims() const { return {batch, heads, queries, keys}; }
  // Reshapes x [B, heads, rows, width] to [B, heads of k, rows of all heads that share it, width]; per_head reshapes
  // it back.
  Value shared(const Value& x) const {
    const int64_t groups = key.dim(1);
    return e.reshape(x, {batch, groups, groups == 0 ? x.dim(2) : heads / groups * x.dim(2), x.dim(3)});
  }
  Value per_head(const Value& x) const { return e.reshape(x, {batch, heads, queries, x.dim(3)}); }

  // Returns the matrix product over the last two dimensions, contracting `a`'s dimension i with `b`'s dimension j.
  Expression product(const Value& a, int64_t i, const Value& b, int64_t j) const {
    return {&e, e.dot_general(a, b, {{0, 1}, {0, 1}, {i}, {j}}, element, product_precision(e, a.element()))};
  }
  Expression row(const Value& x) const { return {&e, e.broadcast_in_dim(x, score_dims(), {0, 1, 2})}; }

  // Returns scale * q k^T, causal (aligned at the first query and key) and with the bias.
  Expression scores() const {
    Expression s = product(shared(query), 3, key, 3);
    s = s.with(per_head(s.value)) * scale;
    if (c.boolean("is_causal")) {
      const Type positions{ElementType::kS32, score_dims()};
      Expression q{&e, e.iota(positions, 2)}, k{&e, e.iota(positions, 3)};
      s = where(k <= q, s, -INFINITY);
    }
    for (const char* name : {"attn_bias", "attn_mask"}) {
      if (!c.has(name)) continue;
      const Value bias = c.tensor(name);
      Expression b{&e, e.broadcast_to(bias, score_dims())};
      if (bias.element() == ElementType::kPred) return where(b, s, -INFINITY);
      return s + b.with(e.to(b.value, element));
    }
    return s;
  }

  bool has_numbers_as_bias() const {
    const auto is_number = [this](const char* name) {
      return c.has(name) && c.tensor(name).element() != ElementType::kPred;
    };
    return is_number("attn_bias") || is_number("attn_mask");
  }

  // Returns what forward saves of each row of scores. CUDA's memory-efficient kernel pads rows to a multiple of 32,
  // and saves none if it isn't asked for any. cuDNN's result has one more dimension.
  Value saved(const Value& rows, const graph::TensorType& form) const {
    const Dims dims = dims_of(form);
    if (form.numel() == 0) return e.zeros(e.type_of(form));
    const bool is_longer = dims.size() == 3 && dims[2] > queries;
    return e.as(is_longer ? e.pad_dim(rows, 2, 0, dims[2] - queries) : e.reshape(rows, dims), form);
  }
  Value read(const Value& saved) const {
    Value rows = e.to(saved, element);
    if (rows.rank() == 3 && rows.dim(2) > queries) rows = e.slice_dim(rows, 2, 0, queries);
    return e.reshape(rows, {batch, heads, queries});
  }

  // Returns x times the dropout mask, drawn from the key of this call.
  Expression dropped(const Call& keyed, const Expression& x) const {
    const double p = c.real("dropout_p");
    if (p >= 1) return x * 0;
    Expression uniform{&e, random_uniform(e, keyed, {ElementType::kF32, score_dims()})};
    return where(uniform < 1 - p, x / (1 - p), 0);
  }
};

// Rows of -inf have no maximum to subtract, so `instead` replaces it.
Expression finite_or(const Expression& x, double instead) { return where(x == -INFINITY, instead, x); }

// aten::_scaled_dot_product_flash_attention_for_cpu: (output, logsumexp), without dropout.
// aten::_scaled_dot_product_efficient_attention: (output, logsumexp, seed, offset).
// aten::_scaled_dot_product_flash_attention: (output, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, rng_state,
// unused, debug mask).
// CUDA's other two and aten::_scaled_dot_product_fused_attention_overrideable: (…, seed, offset, debug mask).
// The two halves of the random key are returned as seed and offset, or as the state, so that backward draws the same
// numbers.
Values attention(Emit& e, const Call& c) {
  Attention a(e, c);
  if (c.has("return_debug_mask") && c.boolean("return_debug_mask")) throw Unsupported("return_debug_mask");
  Expression s = a.scores();
  Expression highest{&e, e.max(s.value, {3})};
  highest = finite_or(highest, 0);
  Expression p = exp(below(s, a.row(highest.value)));
  Expression sum{&e, e.sum(p.value, {3})};
  p = p / a.row(where(sum == 0, 1, sum).value);
  const bool drops = c.real("dropout_p") > 0;
  if (drops) {
    if (!c.rng_key) throw Unsupported("dropout in attention without a random key");
    p = a.dropped(c, p);
  }
  Expression out = a.product(a.shared(e.to(p.value, a.value.element())), 3, a.value, 2);

  Values results(c.results.size());
  results[0] = e.as(e.reshape(a.per_head(out.value), dims_of(c.result(0))), c.result(0));
  results[1] = a.saved((highest + log(sum)).value, c.result(1));
  int64_t half = 0;
  for (size_t i = 2; i < results.size(); ++i) {
    if (!c.results[i]) continue;
    const Type type = e.type_of(c.result(i));
    results[i] = e.zeros(type);
    if (drops && type == Type{ElementType::kU64, {2}}) results[i] = c.rng_key;
    const bool is_half = drops && half < 2 && type == Type{ElementType::kS64, {}};
    if (is_half) results[i] = e.bitcast_convert(e.reshape(e.slice(c.rng_key, {half}, {half + 1}, {1}), {}), type);
    ++half;
  }
  return results;
}

// aten::_scaled_dot_product_…_backward: the probabilities are computed again from logsumexp. Where a bias masks a
// whole row by a large number, logsumexp is that number, rounded, and the probabilities don't sum to 1. They are
// divided by their sum, as in PyTorch's math implementation. Its fused CPU kernel doesn't divide, and such a row's
// gradient is too large by the number of keys.
Values attention_backward(Emit& e, const Call& c) {
  Attention a(e, c);
  auto as_four = [&](std::string_view name, int64_t width) {
    return e.reshape(c.tensor(name), {a.batch, a.heads, a.queries, width});
  };
  const int64_t width = a.value.dim(3);
  Value dy = as_four(c.has("grad_out_") ? "grad_out_" : "grad_out", width), y = as_four("out", width);
  const Expression saved{&e, a.read(c.tensor("logsumexp"))};
  Expression p = exp(below(a.scores(), a.row(finite_or(saved, INFINITY).value)));
  const bool drops = c.real("dropout_p") > 0;
  if (a.has_numbers_as_bias()) {
    Expression sum{&e, e.sum(p.value, {3})};
    p = p / a.row(where(sum == 0, 1, sum).value);
  }
  Expression used = p, dp = a.product(a.shared(dy), 3, a.value, 3);
  dp = dp.with(a.per_head(dp.value));
  if (drops) {
    if (!c.has("philox_seed")) throw Unsupported("dropout in attention without the random key of its forward");
    Call keyed = c;
    auto words = [&](std::string_view name) {
      const Value x = c.tensor(name);
      return e.reshape(e.bitcast_convert(x, {ElementType::kU64, x.dims()}), {x.type.elements()});
    };
    // A value other than the forward's key, from which more would be drawn.
    const Value both = e.concatenate({words("philox_seed"), words("philox_offset")}, 0);
    keyed.rng_key = e.slice(both, {0}, {2}, {1});
    // Both products need the same numbers, so the key is used once.
    Expression mask = a.dropped(keyed, p * 0 + 1);
    used = p * mask;
    dp = dp * mask;
  }
  // The sum over keys of p * dp equals the sum of dy * y over the width.
  Value rows = e.sum(e.mul(e.to(dy, a.element), e.to(y, a.element)), {3});
  Expression ds = p * (dp - a.row(rows));
  Value narrow = a.shared(e.to((ds * a.scale).value, a.query.element()));

  auto shaped = [&](const Expression& x, size_t i) {
    return e.as(e.reshape(x.value, dims_of(c.result(i))), c.result(i));
  };
  Values grads(c.results.size());
  if (c.results[0]) grads[0] = shaped(a.product(narrow, 3, a.key, 2), 0);
  if (c.results[1]) grads[1] = shaped(a.product(narrow, 2, a.shared(a.query), 2), 1);
  if (c.results[2]) {
    Value probabilities = a.shared(e.to(used.value, dy.element()));
    grads[2] = shaped(a.product(probabilities, 2, a.shared(dy), 2), 2);
  }
  if (c.results.size() > 3 && c.results[3]) {
    // The bias was broadcast, so its gradient is summed over those dimensions.
    Dims dims = dims_of(c.result(3)), full = a.score_dims(), summed;
    dims.insert(dims.begin(), full.size() - dims.size(), 1);
    for (size_t d = 0; d < full.size(); ++d) {
      if (dims[d] != full[d]) summed.push_back(static_cast<int64_t>(d));
    }
    grads[3] = shaped({&e, e.sum(ds.value, summed)}, 3);
  }
  return grads;
}

// --- by PyTorch's kernel --------------------------------------------------------------------------------------------

// Returns the number of multiplications in the scores, where query and key are operands `query` and `query` + 1.
template <size_t query>
int64_t multiplications(const std::vector<graph::TypePtr>& operands) {
  const graph::TensorType &q = *operands.at(query), &k = *operands.at(query + 1);
  return k.rank() < 2 ? 0 : q.numel() * k.sizes[k.sizes.size() - 2];
}

// The flash kernel holds a block of scores at a time, where XLA writes all of them, and multiplies 16-bit numbers
// directly. Its backward is slower than XLA's up to some 200 tokens (docs/performance.md).
template <Heavy op, size_t query>
Platforms flash() {
  return {.aten_from = least_work(op), .aten_kinds = kFloats, .aten_work = multiplications<query>};
}

}  // namespace

void add_attention_rules(RuleTable& rules) {
  for (const std::string kind : {"fused_attention_overrideable", "flash_attention_for_cpu", "efficient_attention",
                                 "flash_attention", "cudnn_attention"}) {
    const bool of_cpu = kind == "flash_attention_for_cpu";
    rules.add_composite("aten::_scaled_dot_product_" + kind, attention,
                        of_cpu ? flash<Heavy::kAttention, 0>() : Platforms());
    rules.add_composite("aten::_scaled_dot_product_" + kind + "_backward", attention_backward,
                        of_cpu ? flash<Heavy::kAttentionBackward, 1>() : Platforms());
  }
}

}  // namespace tpjrt::ops
