// Batch, layer and group normalization, and their backwards.
//
// Statistics of half types are computed in f32, in two passes that subtract the mean first, like PyTorch's. Weights
// and statistics may have a wider dtype than the input.
#include "ops/reduction/reduction.h"

#include "ops/rule/by_aten.h"
#include "ops/rule/dims.h"
#include "ops/rule/expression.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace {

// A tensor as groups that share a mean: statistics have the dimensions that are not in `over`.
struct Groups {
  Emit& e;
  Dims dims, over;

  double count() const {
    double n = 1;
    for (int64_t d : over) n *= static_cast<double>(dims[static_cast<size_t>(d)]);
    return n;
  }
  Expression sum(const Expression& x) const { return x.with(e.sum(x.value, over)); }
  Expression mean(const Expression& x) const { return sum(x) / count(); }
  Expression full(const Expression& s) const { return s.with(e.broadcast_reduced(s.value, over, dims)); }
};

// Throws Mistake for dtypes that PyTorch's kernels refuse: parameters and running statistics have the input's dtype,
// or all are f32 if that is a half type.
void check_dtypes(const Call& c) {
  const c10::ScalarType input = c.type("input").dtype;
  const bool half = input == c10::kHalf || input == c10::kBFloat16;
  bool same = true, wide = half;
  for (const std::string_view name : {"weight", "bias", "running_mean", "running_var"}) {
    if (!c.has(name)) continue;
    same &= c.type(name).dtype == input;
    wide &= c.type(name).dtype == c10::kFloat;
  }
  if (!same && !wide) throw Mistake("parameters of another dtype than the input's");
}

struct Statistics {
  Expression mean, variance;
};

// The implementation of batch norms that use the images' own statistics.
enum class By : uint8_t { kXla, kLibrary };

Statistics statistics(const Groups& g, const Expression& x) {
  Expression mean = g.mean(x), centered = x - g.full(mean);
  return {mean, g.mean(centered * centered)};
}

Expression inverse_deviation(const Expression& variance, double eps) { return (variance + eps).unary("rsqrt"); }

// Returns the gradient of (x - mean) * rstd, where mean and rstd are functions of x: `hat` is that result, `dy` its
// gradient.
Expression normalized_gradient(const Groups& g, const Expression& dy, const Expression& hat, const Expression& rstd) {
  return (dy - g.full(g.mean(dy)) - hat * g.full(g.mean(dy * hat))) * rstd;
}

// --- batch norm -----------------------------------------------------------------------------------------------------

// The arguments of one batch norm call, in the dtype in which it is computed; per-channel vectors stay 1-d.
struct BatchNorm {
  Emit& e;
  const Call& c;
  Value input;
  ElementType element;
  Groups groups;
  double eps;

  BatchNorm(Emit& emit, const Call& call)
      : e(emit),
        c(call),
        input(call.tensor("input")),
        element(Emit::compute_element(input.element())),
        groups{emit, input.dims(), {}},
        eps(call.real("eps")) {
    for (int64_t d = 0; d < input.rank(); ++d) {
      if (d != 1) groups.over.push_back(d);
    }
  }
  Expression tensor(std::string_view name) const { return {&e, e.to(c.tensor(name), element)}; }
  // Returns the argument, or `missing` in every channel if it is not given. PyTorch's forward takes (C, 1, 1, 1), too.
  Expression vector(std::string_view name, double missing) const {
    if (c.has(name)) return {&e, e.reshape(tensor(name).value, {input.dim(1)})};
    return {&e, e.constant(missing, {element, {input.dim(1)}})};
  }
  Value give(const Expression& x, size_t i) const { return e.as(x.value, c.result(i)); }
};

// Computes all forward batch norms: output, mean, 1 / deviation, and with running statistics their new values, which
// PyTorch writes in place. The running variance is the unbiased one.
template <By by>
Values batch_norm(const BatchNorm& b, bool training) {
  const Call& c = b.c;
  check_dtypes(c);
  const bool running = c.has("running_mean");
  training |= !running;
  Expression x = b.tensor("input"), weight = b.vector("weight", 1), bias = b.vector("bias", 0);
  const double n = b.groups.count();
  Statistics m;
  Expression rstd, y;
  std::optional<Values> done;
  if (by == By::kLibrary && training) done = library_batch_norm(b.e, b.input, weight.value, bias.value, b.eps);
  if (done) {
    y = {&b.e, (*done)[0]}, rstd = {&b.e, (*done)[2]};
    m = {{&b.e, (*done)[1]}, Expression{&b.e, (*done)[3]} * ((n - 1) / n)};
  } else {
    m = training ? statistics(b.groups, x) : Statistics{b.tensor("running_mean"), b.tensor("running_var")};
    rstd = inverse_deviation(m.variance, b.eps);
    y = (x - b.groups.full(m.mean)) * b.groups.full(rstd * weight) + b.groups.full(bias);
  }
  Values values{b.give(y, 0)};
  // Evaluation saves nothing, so these results have size 0.
  for (size_t i : {1, 2}) {
    const bool saved = c.result(i).numel() != 0;
    values.push_back(saved ? b.give(i == 1 ? m.mean : rstd, i) : b.e.zeros(b.e.type_of(c.result(i))));
  }
  if (!running) return values;
  if (!training) {
    values.insert(values.end(), {c.tensor("running_mean"), c.tensor("running_var")});
    return values;
  }
  const Expression momentum{&b.e, c.scalar(b.e, "momentum", ElementType::kF64)};
  const auto factor = [&](const Expression& x) {
    return x.with(b.e.broadcast_to(b.e.convert(x.value, b.element), m.mean.value.dims()));
  };
  auto moved = [&](std::string_view name, const Expression& now) {
    Expression next = b.tensor(name) * factor(1 - momentum) + now * factor(momentum);
    values.push_back(b.e.as(next.value, c.type(name)));
  };
  moved("running_mean", m.mean);
  moved("running_var", done ? Expression{&b.e, (*done)[3]} : m.variance * (n / (n - 1)));
  return values;
}

// aten::native_batch_norm updates its running statistics, which its schema doesn't say: they are results 3 and 4
// here. The schemas of aten::_native_batch_norm_legit_functional and .no_stats are complete.
template <By by>
Values native_batch_norm(Emit& e, const Call& c) {
  const bool training = c.boolean("training");
  if (training && c.tensor("input").type.elements() == 0) throw Mistake("statistics of no elements");
  Values values = batch_norm<by>(BatchNorm(e, c), training);
  values.resize(c.results.size());
  return values;
}

// aten::_native_batch_norm_legit_no_training, and _batch_norm_no_update, whose `reserve` is scratch for other
// backends.
Values native_batch_norm_no_training(Emit& e, const Call& c) {
  Values values = batch_norm<By::kXla>(BatchNorm(e, c), false);
  values.resize(3);
  if (c.results.size() > 3) values.push_back(e.zeros(e.type_of(c.result(3))));
  return values;
}

// aten::_batch_norm_with_update_functional, which has a `reserve` as well.
template <By by>
Values batch_norm_with_update(Emit& e, const Call& c) {
  Values values = batch_norm<by>(BatchNorm(e, c), true);
  values.insert(values.begin() + 3, e.zeros(e.type_of(c.result(3))));
  return values;
}

template <By by>
Values batch_norm_gradients(const BatchNorm& b, bool training, std::string_view saved_deviation) {
  const Call& c = b.c;
  Expression x = b.tensor("input"), dy = b.tensor("grad_out"), weight = b.vector("weight", 1);
  Expression mean = b.tensor(training ? "save_mean" : "running_mean");
  Expression rstd = training ? b.tensor(saved_deviation) : inverse_deviation(b.tensor("running_var"), b.eps);
  if (by == By::kLibrary && training) {
    const auto done =
        library_batch_norm_gradients(b.e, c.tensor("grad_out"), b.input, weight.value, mean.value, rstd.value, b.eps);
    Values asked(3);
    for (size_t i = 0; done && i < 3; ++i) {
      if (c.results[i]) asked[i] = b.give({&b.e, (*done)[i]}, i);
    }
    if (done) return asked;
  }
  Expression hat = (x - b.groups.full(mean)) * b.groups.full(rstd), scale = b.groups.full(rstd * weight);
  Values grads(3);
  if (c.results[0]) grads[0] = b.give(training ? normalized_gradient(b.groups, dy, hat, scale) : dy * scale, 0);
  if (c.results[1]) grads[1] = b.give(b.groups.sum(dy * hat), 1);
  if (c.results[2]) grads[2] = b.give(b.groups.sum(dy), 2);
  return grads;
}

// aten::native_batch_norm_backward
template <By by>
Values native_batch_norm_backward(Emit& e, const Call& c) {
  return batch_norm_gradients<by>(BatchNorm(e, c), c.boolean("train"), "save_invstd");
}

// aten::batch_norm_backward: save_var is 1 / deviation here too.
template <By by>
Values batch_norm_backward(Emit& e, const Call& c) {
  return batch_norm_gradients<by>(BatchNorm(e, c), c.boolean("update"), "save_var");
}

// --- layer norm -----------------------------------------------------------------------------------------------------

Value optional_tensor(const Call& c, std::string_view name) { return c.has(name) ? c.tensor(name) : Value(); }

// Returns the first dimension of a row.
int64_t axis_of(const Call& c) {
  return c.tensor("input").rank() - static_cast<int64_t>(c.ints("normalized_shape").size());
}

// aten::native_layer_norm: over the last dimensions; mean and rstd keep them as 1.
Values native_layer_norm(Emit& e, const Call& c) {
  check_dtypes(c);
  Elementwise k(e, c);
  Expression x = k("input");
  const int64_t rank = x.value.rank(), outer = axis_of(c);
  Groups g{e, x.value.dims(), range(outer, rank)};
  Statistics m = statistics(g, x);
  Expression rstd = inverse_deviation(m.variance, c.real("eps"));
  Expression y = (x - g.full(m.mean)) * g.full(rstd);
  if (c.has("weight")) y = y * k("weight");
  if (c.has("bias")) y = y + k("bias");
  auto statistic = [&](const Expression& s, size_t i) {
    return e.as(e.reshape(s.value, dims_of(c.result(i))), c.result(i));
  };
  return {e.as(y.value, c.result()), statistic(m.mean, 1), statistic(rstd, 2)};
}

Values layer_norm_with_kernels(Emit& e, const Call& c) {
  check_dtypes(c);
  auto done = library_layer_norm(e, c.tensor("input"), optional_tensor(c, "weight"), optional_tensor(c, "bias"),
                                 axis_of(c), c.real("eps"));
  if (!done) return native_layer_norm(e, c);
  for (size_t i : {1, 2}) (*done)[i] = e.as(e.reshape((*done)[i], dims_of(c.result(i))), c.result(i));
  return *done;
}

// aten::native_layer_norm_backward
Values native_layer_norm_backward(Emit& e, const Call& c) {
  Value input = c.tensor("input");
  Elementwise k(e, c, {Emit::compute_element(input.element()), input.dims()});
  const int64_t rank = input.rank(), outer = axis_of(c);
  Groups inner{e, input.dims(), range(outer, rank)}, rows{e, input.dims(), range(0, outer)};
  Expression dy = k("grad_out"), rstd = k("rstd"), hat = (k("input") - k("mean")) * rstd;
  Values grads(3);
  if (c.results[0]) {
    Expression weighted = c.has("weight") ? dy * k("weight") : dy;
    // The norm before this one reads the gradient for two sums and once more.
    grads[0] = e.computed_once(e.as(normalized_gradient(inner, weighted, hat, rstd).value, c.result(0)));
  }
  if (c.results[1]) grads[1] = e.as(rows.sum(dy * hat).value, c.result(1));
  if (c.results[2]) grads[2] = e.as(rows.sum(dy).value, c.result(2));
  return grads;
}

Values layer_norm_backward_with_kernels(Emit& e, const Call& c) {
  auto done = library_layer_norm_gradients(e, c.tensor("grad_out"), c.tensor("input"), c.tensor("mean"),
                                           c.tensor("rstd"), optional_tensor(c, "weight"), axis_of(c),
                                           {c.results[0] != nullptr, c.results[1] != nullptr, c.results[2] != nullptr});
  if (!done) return native_layer_norm_backward(e, c);
  for (size_t i = 0; i < 3; ++i) {
    if (c.results[i]) (*done)[i] = e.as(e.reshape((*done)[i], dims_of(c.result(i))), c.result(i));
  }
  return *done;
}

// --- group norm -----------------------------------------------------------------------------------------------------

// A group norm's input [N, C, ...] and the same elements as [N, group, C / group, positions]: XLA:CPU sums over two
// dimensions faster than over one long dimension.
struct GroupNorm {
  Emit& e;
  const Call& c;
  Type channels;
  Groups groups;

  GroupNorm(Emit& emit, const Call& call)
      : e(emit), c(call), channels(call.tensor("input").type), groups{emit, {}, {2, 3}} {
    channels.element = Emit::compute_element(channels.element);
    const int64_t n = c.integer("N"), count = c.integer("group");
    groups.dims = {n, count, count == 0 ? 0 : c.integer("C") / count, c.integer("HxW")};
  }
  Expression tensor(std::string_view name) const { return {&e, e.to(c.tensor(name), channels.element)}; }
  Expression grouped(const Expression& x) const { return x.with(e.reshape(x.value, groups.dims)); }
  Expression by_channel(const Expression& x) const { return x.with(e.reshape(x.value, channels.dims)); }
  // Returns a per-channel vector in every position.
  Expression vector(std::string_view name) const {
    Expression v = tensor(name);
    return v.with(e.broadcast_in_dim(v.value, channels.dims, {1}));
  }
  Expression statistic(std::string_view name) const {
    Expression s = tensor(name);
    return groups.full(s.with(e.reshape(s.value, {groups.dims[0], groups.dims[1]})));
  }
};

// aten::native_group_norm: mean and rstd are [N, group].
Values native_group_norm(Emit& e, const Call& c) {
  check_dtypes(c);
  GroupNorm n(e, c);
  Expression x = n.grouped(n.tensor("input"));
  Statistics m = statistics(n.groups, x);
  Expression rstd = inverse_deviation(m.variance, c.real("eps"));
  Expression y = n.by_channel((x - n.groups.full(m.mean)) * n.groups.full(rstd));
  if (c.has("weight")) y = y * n.vector("weight");
  if (c.has("bias")) y = y + n.vector("bias");
  return {e.as(y.value, c.result()), e.as(m.mean.value, c.result(1)), e.as(rstd.value, c.result(2))};
}

// aten::native_group_norm_backward
Values native_group_norm_backward(Emit& e, const Call& c) {
  GroupNorm n(e, c);
  Expression dy = n.tensor("grad_out"), rstd = n.statistic("rstd");
  Expression hat = (n.grouped(n.tensor("input")) - n.statistic("mean")) * rstd;
  Groups channels{e, n.channels.dims, range(2, n.channels.rank())};
  channels.over.insert(channels.over.begin(), 0);
  Values grads(3);
  if (c.results[0]) {
    Expression weighted = n.grouped(c.has("weight") ? dy * n.vector("weight") : dy);
    grads[0] = e.as(n.by_channel(normalized_gradient(n.groups, weighted, hat, rstd)).value, c.result(0));
  }
  if (c.results[1]) grads[1] = e.as(channels.sum(dy * n.by_channel(hat)).value, c.result(1));
  if (c.results[2]) grads[2] = e.as(channels.sum(dy).value, c.result(2));
  return grads;
}

}  // namespace

void add_normalization_rules(RuleTable& rules) {
  rules.add_composite("aten::native_batch_norm", native_batch_norm<By::kXla>,
                      {.with_kernels = native_batch_norm<By::kLibrary>}, kFloats);
  rules.add_composite("aten::_native_batch_norm_legit_functional", native_batch_norm<By::kXla>,
                      {.with_kernels = native_batch_norm<By::kLibrary>}, kFloats);
  rules.add_composite("aten::_native_batch_norm_legit.no_stats", native_batch_norm<By::kXla>,
                      {.with_kernels = native_batch_norm<By::kLibrary>}, kFloats);
  rules.add_composite("aten::_native_batch_norm_legit_no_training", native_batch_norm_no_training, kFloats);
  rules.add_composite("aten::_batch_norm_no_update", native_batch_norm_no_training, kFloats);
  rules.add_composite("aten::_batch_norm_with_update_functional", batch_norm_with_update<By::kXla>,
                      {.with_kernels = batch_norm_with_update<By::kLibrary>}, kFloats);
  rules.add_composite("aten::native_batch_norm_backward", native_batch_norm_backward<By::kXla>,
                      {.with_kernels = native_batch_norm_backward<By::kLibrary>}, kFloats);
  rules.add_composite("aten::batch_norm_backward", batch_norm_backward<By::kXla>,
                      {.with_kernels = batch_norm_backward<By::kLibrary>}, kFloats);
  rules.add_composite("aten::native_layer_norm", native_layer_norm, {.with_kernels = layer_norm_with_kernels}, kFloats);
  rules.add_composite("aten::native_layer_norm_backward", native_layer_norm_backward,
                      {.with_kernels = layer_norm_backward_with_kernels}, kFloats);
  rules.add_composite("aten::native_group_norm", native_group_norm,
                      {.aten_from_nhwc = kAtenFrom, .aten_work = elements_of_one_dtype}, kFloats);
  rules.add_composite("aten::native_group_norm_backward", native_group_norm_backward,
                      {.aten_from = kAtenFrom, .aten_from_nhwc = kAtenFrom, .aten_work = elements_of_one_dtype},
                      kFloats);
}

}  // namespace tpjrt::ops
