// Activations and their derivatives, softmax among them.
//
// Comparisons are written so that NaN takes the same branch as on the CPU.
#include <cmath>
#include <optional>

#include "ops/pointwise/pointwise.h"
#include "ops/rule/by_aten.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace {

// --- relu and its relatives -----------------------------------------------------------------------------------------

// aten::relu: max(x, 0), integers too.
Values relu(Emit& e, const Call& c) {
  Elementwise k(e, c);
  return k.give(larger_of(k("self"), k("self").number(0)));
}

// aten::threshold: NaN is above every threshold.
Values threshold(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self");
  return k.give(where(x <= k.scalar("threshold"), k.scalar("value"), x));
}

// aten::threshold_backward: relu's derivative too.
Values threshold_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  return k.give(where(k("self") <= k.scalar("threshold"), 0, k("grad_output")));
}

// aten::leaky_relu
Values leaky_relu(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self");
  return k.give(where(x > 0, x, x * k.scalar("negative_slope")));
}

// aten::leaky_relu_backward: the sign of input and result agree, so self may be either.
Values leaky_relu_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression g = k("grad_output");
  return k.give(where(k("self") > 0, g, g * k.scalar("negative_slope")));
}

// aten::_prelu_kernel: weight arrives in a shape that broadcasts.
Values prelu(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self");
  return k.give(where(x > 0, x, k("weight") * x));
}

// aten::_prelu_kernel_backward: the weight's gradient is not yet reduced.
Values prelu_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self"), g = k("grad_output");
  return k.give(where(x > 0, g, k("weight") * g), where(x > 0, 0, x * g));
}

// aten::hardtanh: max first, so that max_val wins when the bounds are crossed.
Values hardtanh(Emit& e, const Call& c) {
  Elementwise k(e, c);
  return k.give(smaller_of(larger_of(k("self"), k.scalar("min_val")), k.scalar("max_val")));
}

// aten::hardtanh_backward: zero on the bounds.
Values hardtanh_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self");
  return k.give(where((x <= k.scalar("min_val")) | (x >= k.scalar("max_val")), 0, k("grad_output")));
}

// aten::hardsigmoid
Values hardsigmoid(Emit& e, const Call& c) {
  Elementwise k(e, c);
  return k.give(minimum(maximum(k("self") + 3, 0), 6) / 6);
}

// aten::hardsigmoid_backward
Values hardsigmoid_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self");
  return k.give(where((x > -3) & (x < 3), k("grad_output") / 6, 0));
}

// aten::hardswish
Values hardswish(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self");
  return k.give(x * minimum(maximum(x + 3, 0), 6) / 6);
}

// aten::hardswish_backward
Values hardswish_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self"), g = k("grad_output");
  return k.give(where(x <= -3, 0, where(x < 3, g * (x / 3 + 0.5), g)));
}

// aten::hardshrink
Values hardshrink(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self"), lambda = k.scalar("lambd");
  return k.give(where((x >= -lambda) & (x <= lambda), 0, x));
}

// aten::softshrink: between the bounds +0.0, or NaN.
Values softshrink(Emit& e, const Call& c) {
  Elementwise k(e, c);
  if (!(c.constant_scalar("lambd").toDouble() >= 0)) throw Mistake("lambda is negative");
  Expression x = k("self"), lambda = k.scalar("lambd");
  return k.give(where(x > lambda, x - lambda, where(x < -lambda, x + lambda, where(x == x, 0, x))));
}

// aten::hardshrink_backward and aten::softshrink_backward share one formula; `grad` is the gradient's name.
Values shrink_backward(Emit& e, const Call& c, std::string_view grad) {
  Elementwise k(e, c);
  Expression x = k("self"), lambda = k.scalar("lambd");
  return k.give(where((x >= -lambda) & (x <= lambda), 0, k(grad)));
}
Values hardshrink_backward(Emit& e, const Call& c) { return shrink_backward(e, c, "grad_out"); }
Values softshrink_backward(Emit& e, const Call& c) { return shrink_backward(e, c, "grad_output"); }

// --- sigmoid, tanh and functions made of them
// -----------------------------------------------------------------------

// aten::sigmoid: integers give floats, complex is allowed.
Values sigmoid(Emit& e, const Call& c) {
  Elementwise k(e, c);
  return k.give(logistic(k("self")));
}

Expression conjugate(const Expression& x) {
  if (!hlo::is_complex(x.value.element())) return x;
  return x.with(x.e->complex(x.e->unary("real", x.value), x.e->neg(x.e->unary("imag", x.value))));
}

// aten::sigmoid_backward
Values sigmoid_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression y = conjugate(k("output"));
  return k.give(k("grad_output") * (1 - y) * y);
}

// aten::tanh_backward
Values tanh_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression y = conjugate(k("output"));
  return k.give(k("grad_output") * (1 - y * y));
}

// aten::silu
Values silu(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self");
  return k.give(x * logistic(x));
}

// aten::silu_backward
Values silu_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self"), s = logistic(x);
  return k.give(k("grad_output") * (s * (1 + x * (1 - s))));
}

// aten::mish: x * tanh(softplus(x)).
Values mish(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self");
  return k.give(x * tanh(log1p(exp(x))));
}

// aten::mish_backward
Values mish_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self"), t = tanh(log1p(exp(x)));
  return k.give(k("grad_output") * (t + x * logistic(x) * (1 - t * t)));
}

// aten::glu: the first half of dim, gated by the second.
Values glu(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Value x = c.tensor("self");
  int64_t dim = c.dim("dim", x.rank()), half = x.dim(dim) / 2;
  Dims start(x.dims().size(), 0), middle = x.dims(), ones(x.dims().size(), 1);
  Dims gate_start = start;
  gate_start[dim] = middle[dim] = half;
  Expression a = k.lift(e.slice(x, start, middle, ones)), b = k.lift(e.slice(x, gate_start, x.dims(), ones));
  return k.give(a * logistic(b));
}

// aten::glu_backward
Values glu_backward(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  int64_t dim = c.dim("dim", x.rank()), half = x.dim(dim) / 2;
  Dims start(x.dims().size(), 0), middle = x.dims(), ones(x.dims().size(), 1);
  Dims gate_start = start;
  gate_start[dim] = middle[dim] = half;
  Elementwise k(e, c, {Emit::compute_element(x.element()), middle});
  Expression a = k.lift(e.slice(x, start, middle, ones)), s = logistic(k.lift(e.slice(x, gate_start, x.dims(), ones)));
  Expression g = k("grad_output") * s;
  return {e.as(e.concatenate({g.value, (g * (1 - s) * a).value}, dim), c.result())};
}

// --- gelu, elu, softplus --------------------------------------------------------------------------------------------

constexpr double kCubic = 0.044715;                        // in gelu's tanh approximation
constexpr double kSqrtHalf = 0.70710678118654752440;       // sqrt(1/2)
constexpr double kSqrtTwoOverPi = 0.79788456080286535588;  // sqrt(2/pi)
constexpr double kInvSqrtTwoPi = 0.39894228040143267794;   // 1/sqrt(2 pi)

void check_approximate(const Call& c) {
  const std::string how = c.string("approximate");
  if (how != "none" && how != "tanh") throw Mistake("approximate argument must be either none or tanh.");
}

// aten::gelu
Values gelu(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self");
  check_approximate(c);
  if (c.string("approximate") == "tanh") {
    return k.give(0.5 * x * (1 + tanh(kSqrtTwoOverPi * (x + kCubic * x * x * x))));
  }
  return k.give(x * 0.5 * (1 + erf(x * kSqrtHalf)));
}

// aten::gelu_backward
Values gelu_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self"), g = k("grad_output");
  check_approximate(c);
  if (c.string("approximate") == "tanh") {
    Expression t = tanh(kSqrtTwoOverPi * (x + kCubic * x * x * x));
    Expression inner = kSqrtTwoOverPi * (1 + 3 * kCubic * x * x);
    return k.give(g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner));
  }
  Expression cdf = 0.5 * (1 + erf(x * kSqrtHalf)), pdf = exp(x * x * -0.5) * kInvSqrtTwoPi;
  return k.give(g * (cdf + x * pdf));
}

// aten::elu
Values elu(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self"), scale = k.scalar("scale");
  Expression below = expm1(x * k.scalar("input_scale")) * (k.scalar("alpha") * scale);
  return k.give(where(x < 0, below, x * scale));
}

// aten::elu_backward: from the input, or from the result.
Values elu_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self_or_result"), g = k("grad_output"), scale = k.scalar("scale"), in = k.scalar("input_scale");
  Expression low = k.scalar("alpha") * scale;
  Expression below = c.boolean("is_result") ? g * in * (x + low) : g * in * low * exp(x * in);
  return k.give(where(x <= 0, below, g * scale));
}

// aten::celu: elu with input_scale 1 / alpha.
Values celu(Emit& e, const Call& c) {
  Elementwise k(e, c);
  if (is_now(c, "alpha", 0)) throw Mistake("alpha is 0");
  Expression x = k("self"), alpha = k.scalar("alpha");
  return k.give(where(x < 0, expm1(x / alpha) * alpha, x));
}

// aten::softplus: linear above the threshold.
Values softplus(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self"), beta = k.scalar("beta"), z = x * beta;
  return k.give(where(z > k.scalar("threshold"), x, log1p(exp(z)) / beta));
}

// aten::softplus_backward
Values softplus_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression g = k("grad_output"), z = k("self") * k.scalar("beta"), u = exp(z);
  return k.give(where(z > k.scalar("threshold"), g, g * u / (u + 1)));
}

// aten::log_sigmoid_forward: buffer is exp(-|x|), or empty where Meta says so.
Values log_sigmoid_forward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self"), z = exp(-abs(x));
  Value out = e.as((minimum(x, 0) - log1p(z)).value, c.result());
  if (c.result(1).sizes != c.result().sizes) return {out, e.zeros(e.type_of(c.result(1)))};
  return {out, e.as(z.value, c.result(1))};
}

// aten::log_sigmoid_backward
Values log_sigmoid_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Expression x = k("self"), z = c.type("buffer").sizes == c.type("self").sizes ? k("buffer") : exp(-abs(x));
  Expression part = z / (1 + z);
  return k.give(where(x < 0, 1 - part, part) * k("grad_output"));
}

// --- softmax --------------------------------------------------------------------------------------------------------

struct Rows {  // the reduced dimension of a softmax; a 0-d tensor has none
  Emit& e;
  Dims full, reduced;

  Expression max(const Expression& x) const { return back(x, e.max(x.value, reduced)); }
  Expression sum(const Expression& x) const { return back(x, e.sum(x.value, reduced)); }
  Expression back(const Expression& x, const Value& v) const { return x.with(e.broadcast_reduced(v, reduced, full)); }
};

Rows rows_of(Emit& e, const Call& c) {
  Dims full = dims_of(c.result());
  int64_t rank = c.result().rank();
  if (rank == 0) return {e, full, {}};
  return {e, full, {c.has("dim") ? c.dim("dim", rank) : rank - 1}};
}

Expression softmax_of(const Rows& rows, const Expression& x) {
  Expression p = exp(below(x, rows.max(x)));
  return p / rows.sum(p);
}

// aten::_softmax: the result's dtype reflects half_to_float.
Values softmax(Emit& e, const Call& c) {
  Elementwise k(e, c);
  return k.give(softmax_of(rows_of(e, c), k("self")));
}

// aten::_log_softmax
Values log_softmax(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Rows rows = rows_of(e, c);
  const Expression x = k("self");
  const Expression shifted = below(x, rows.max(x));
  return k.give(shifted - log(rows.sum(exp(shifted))));
}

// aten::_safe_softmax: a row of -inf gives 0, not NaN.
Values safe_softmax(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Rows rows = rows_of(e, c);
  Expression x = k("self");
  return k.give(where(rows.max(x) == -INFINITY, 0, softmax_of(rows, x)));
}

// aten::_softmax_backward_data
Values softmax_backward_data(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Rows rows = rows_of(e, c);
  Expression g = k("grad_output"), y = k("output");
  return k.give((g - rows.sum(g * y)) * y);
}

// aten::_log_softmax_backward_data
Values log_softmax_backward_data(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Rows rows = rows_of(e, c);
  Expression g = k("grad_output");
  return k.give(g - exp(k("output")) * rows.sum(g));
}

// Softmax of rows that may call PyTorch's kernels (Note [Claims]).
template <bool log>
Values softmax_with_kernels(Emit& e, const Call& c) {
  const Value x = c.tensor("self");
  std::optional<Value> done;
  if (x.rank() > 0 && c.dim("dim", x.rank()) == x.rank() - 1 && x.type == e.type_of(c.result())) {
    done = library_softmax(e, x, x.rank() - 1, log);
  }
  return done ? Values{*done} : log ? log_softmax(e, c) : softmax(e, c);
}

template <bool log>
Values softmax_backward_with_kernels(Emit& e, const Call& c) {
  const Value y = c.tensor("output");
  std::optional<Value> done;
  if (y.rank() > 0 && c.dim("dim", y.rank()) == y.rank() - 1 && y.type == e.type_of(c.result())) {
    done = library_softmax_gradient(e, c.tensor("grad_output"), y, y.rank() - 1, log);
  }
  return done ? Values{*done} : log ? log_softmax_backward_data(e, c) : softmax_backward_data(e, c);
}

// aten::_masked_softmax: mask is true where x is left out. mask_type says whether it is [L, L], [B, L] or has x's
// shape.
Values masked_softmax(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Value mask = c.tensor("mask");
  Dims full = dims_of(c.result());
  if (c.optional_integer("mask_type") == 1 && mask.rank() == 2 && full.size() == 4) {
    mask = e.reshape(mask, {mask.dim(0), 1, 1, mask.dim(1)});
  }
  Expression x = k("self"), out{&e, e.broadcast_to(e.to(mask, ElementType::kPred), full)};
  return k.give(softmax_of(rows_of(e, c), where(out, -INFINITY, x)));
}

// aten::_masked_softmax_backward
Values masked_softmax_backward(Emit& e, const Call& c) {
  Elementwise k(e, c);
  Rows rows = rows_of(e, c);
  Expression out{&e, e.broadcast_to(e.to(c.tensor("mask"), ElementType::kPred), rows.full)};
  Expression y = k("output"), weighted = where(out, 0, k("grad_output") * y);
  return k.give(where(out, 0, weighted - y * rows.sum(weighted)));
}

}  // namespace

void add_activation_rules(RuleTable& rules) {
  rules.add_composite("aten::relu", relu, kReals);
  rules.add_composite("aten::threshold", threshold, kReals);
  rules.add_composite("aten::threshold_backward", threshold_backward, kReals);
  rules.add_composite("aten::leaky_relu", leaky_relu, kFloats);
  rules.add_composite("aten::leaky_relu_backward", leaky_relu_backward, kFloats);
  rules.add_composite("aten::_prelu_kernel", prelu, kFloats);
  rules.add_composite("aten::_prelu_kernel_backward", prelu_backward, kFloats);
  rules.add_composite("aten::hardtanh", hardtanh, kReals);
  rules.add_composite("aten::hardtanh_backward", hardtanh_backward, kFloats);
  rules.add_composite("aten::hardsigmoid", hardsigmoid, kFloats);
  rules.add_composite("aten::hardsigmoid_backward", hardsigmoid_backward, kFloats);
  rules.add_composite("aten::hardswish", hardswish, kFloats);
  rules.add_composite("aten::hardswish_backward", hardswish_backward, kFloats);
  rules.add_composite("aten::hardshrink", hardshrink, kFloats);
  rules.add_composite("aten::hardshrink_backward", hardshrink_backward, kFloats);
  rules.add_composite("aten::softshrink", softshrink);
  rules.add_composite("aten::softshrink_backward", softshrink_backward, kFloats);
  rules.add_composite("aten::sigmoid", sigmoid);
  rules.add_composite("aten::sigmoid_backward", sigmoid_backward, kInexact);
  rules.add_composite("aten::tanh_backward", tanh_backward, kInexact);
  rules.add_composite("aten::silu", silu, kInexact);
  rules.add_composite("aten::silu_backward", silu_backward, kInexact);
  rules.add_composite("aten::mish", mish, kFloats);
  rules.add_composite("aten::mish_backward", mish_backward, kFloats);
  rules.add_composite("aten::glu", glu, kFloats);
  rules.add_composite("aten::glu_backward", glu_backward, kFloats);
  rules.add_composite("aten::gelu", gelu, kFloats);
  rules.add_composite("aten::gelu_backward", gelu_backward, kFloats);
  rules.add_composite("aten::elu", elu, kFloats);
  rules.add_composite("aten::elu_backward", elu_backward, kFloats);
  rules.add_composite("aten::celu", celu, kFloats);
  rules.add_composite("aten::softplus", softplus, kFloats);
  rules.add_composite("aten::softplus_backward", softplus_backward, kFloats);
  rules.add_composite("aten::log_sigmoid_forward", log_sigmoid_forward, kFloats);
  rules.add_composite("aten::log_sigmoid_backward", log_sigmoid_backward, kFloats);
  rules.add_composite("aten::_softmax", softmax, {.with_kernels = softmax_with_kernels<false>}, kFloats);
  rules.add_composite("aten::_log_softmax", log_softmax, {.with_kernels = softmax_with_kernels<true>}, kFloats);
  rules.add_composite("aten::_safe_softmax", safe_softmax);
  rules.add_composite("aten::_softmax_backward_data", softmax_backward_data,
                      {.with_kernels = softmax_backward_with_kernels<false>}, kFloats);
  rules.add_composite("aten::_log_softmax_backward_data", log_softmax_backward_data,
                      {.with_kernels = softmax_backward_with_kernels<true>}, kFloats);
  rules.add_composite("aten::_masked_softmax", masked_softmax);
  rules.add_composite("aten::_masked_softmax_backward", masked_softmax_backward);
}

}  // namespace tpjrt::ops
