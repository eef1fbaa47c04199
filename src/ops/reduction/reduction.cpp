// Reductions to one number for each slice: sum, mean, prod, max, var, norm, logsumexp, any, all. Reductions that return
// positions are in arg_reduction.cpp, scans in scan.cpp, order statistics in ops/movement/sorting.cpp. All compute in
// compute_element (f32 for the 8- and 16-bit floats), as torch accumulates.
#include <cmath>

#include "ops/rule/rules.h"

namespace tpjrt::ops {

void add_arg_reduction_rules(RuleTable& rules);  // arg_reduction.cpp
void add_scan_rules(RuleTable& rules);           // scan.cpp

namespace {

// Returns the reduced dimensions: those in the argument "dim", or all if it is absent, None or empty.
Dims reduced_dims(const Call& c, int64_t rank) {
  if (rank == 0) return {};
  for (const Argument& argument : c.arguments) {
    if (argument.name != "dim") continue;
    if (argument.kind == Argument::Kind::kInt) return {c.dim("dim", rank)};
    if (argument.kind == Argument::Kind::kIntList) return c.dims("dim", rank);
  }
  Dims all;
  for (int64_t i = 0; i < rank; ++i) all.push_back(i);
  return all;
}

int64_t count(const Dims& dims, const Dims& reduced) {
  int64_t n = 1;
  for (int64_t d : reduced) n *= dims[static_cast<size_t>(d)];
  return n;
}

// Restores keepdim's dimensions and converts to the result's dtype.
Value finish(Emit& e, const Value& x, const graph::TensorType& result) {
  return e.to(e.reshape(x, Dims(result.sizes.begin(), result.sizes.end())), e.element(result));
}

// Returns self in the dtype in which torch computes: cast to the result's dtype first, then widened.
Value widened(Emit& e, const Call& c) {
  Value x = e.to(c.tensor("self"), e.element(c.result()));
  return e.to(x, Emit::compute_element(x.element()));
}

// aten::sum: integers and bool are summed as int64 (the result's dtype says so).
Values sum(Emit& e, const Call& c) {
  Value x = widened(e, c);
  return {finish(e, e.sum(x, reduced_dims(c, x.rank())), c.result())};
}

// aten::nansum: NaN counts as zero.
Values nansum(Emit& e, const Call& c) {
  Value x = widened(e, c);
  if (hlo::is_float(x.element())) x = e.select(e.isnan(x), e.zeros(x.type), x);
  return {finish(e, e.sum(x, reduced_dims(c, x.rank())), c.result())};
}

// aten::mean: the mean of nothing is NaN.
Values mean(Emit& e, const Call& c) {
  Value x = widened(e, c);
  return {finish(e, e.mean(x, reduced_dims(c, x.rank())), c.result())};
}

// aten::prod: integers and bool are multiplied as int64.
Values prod(Emit& e, const Call& c) {
  Value x = widened(e, c);
  return {finish(e, e.backend().product(e, x, reduced_dims(c, x.rank())), c.result())};
}

// Returns the argument "self" of an op without an identity. Throws Mistake if a reduced dimension has no elements but
// the result has some.
Value extreme_of(const Call& c) {
  Value x = c.tensor("self");
  if (count(x.dims(), reduced_dims(c, x.rank())) == 0 && c.result().numel() > 0) throw Mistake("an extreme of nothing");
  return x;
}

// aten::amax, aten::max: NaN propagates.
Values amax(Emit& e, const Call& c) {
  Value x = extreme_of(c);
  return {finish(e, e.max(x, reduced_dims(c, x.rank())), c.result())};
}

// aten::amin, aten::min
Values amin(Emit& e, const Call& c) {
  Value x = extreme_of(c);
  return {finish(e, e.min(x, reduced_dims(c, x.rank())), c.result())};
}

// aten::aminmax: dim is optional, and None means all.
Values aminmax(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  Dims dims = reduced_dims(c, x.rank());
  return {finish(e, e.min(x, dims), c.result(0)), finish(e, e.max(x, dims), c.result(1))};
}

// Computes any and all with `op`. Unlike everywhere else, an empty list of dims means that nothing is reduced.
Values truth(Emit& e, const Call& c, std::string_view op, bool identity) {
  Value x = e.to(c.tensor("self"), ElementType::kPred);
  Dims dims = reduced_dims(c, x.rank());
  for (const Argument& argument : c.arguments) {
    if (argument.kind == Argument::Kind::kIntList && argument.ints.empty()) dims.clear();
  }
  Value initial = e.constant(static_cast<int64_t>(identity), Type{ElementType::kPred, {}});
  return {finish(e, dims.empty() ? x : e.reduce(op, x, initial, dims), c.result())};
}

// aten::any: uint8 gives uint8.
Values any(Emit& e, const Call& c) { return truth(e, c, "or", false); }
// aten::all: uint8 gives uint8.
Values all(Emit& e, const Call& c) { return truth(e, c, "and", true); }

// aten::count_nonzero: NaN is not zero.
Values count_nonzero(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  Dims dims = reduced_dims(c, x.rank());
  return {finish(e, e.sum(e.to(e.to(x, ElementType::kPred), ElementType::kS64), dims), c.result())};
}

struct Moments {
  Value variance, mean;  // reduced dims dropped, in the compute dtype; the variance of complex numbers is real
};

// Takes two passes, for accuracy. With no more elements than the correction the variance is x/0: NaN or inf, as in
// torch.
Moments moments(Emit& e, const Call& c, const Dims& dims) {
  Value x = c.tensor("self");
  if (!hlo::is_float(x.element()) && !hlo::is_complex(x.element())) throw Mistake("a variance of integers");
  x = e.to(x, Emit::compute_element(x.element()));
  Value mean = e.mean(x, dims);
  Value centered = e.sub(x, e.broadcast_reduced(mean, dims, x.dims()));
  Value square;
  if (hlo::is_complex(x.element())) {
    Value re = e.unary("real", centered), im = e.unary("imag", centered);
    square = e.add(e.mul(re, re), e.mul(im, im));
  } else {
    square = e.mul(centered, centered);
  }
  double correction = c.has("correction") ? c.constant_scalar("correction").toDouble() : 1.0;
  double divisor = std::max(0.0, static_cast<double>(count(x.dims(), dims)) - correction);
  Value total = e.sum(square, dims);
  return {e.div(total, e.splat(divisor, total.type)), mean};
}

// aten::var
Values var(Emit& e, const Call& c) {
  return {finish(e, moments(e, c, reduced_dims(c, c.tensor("self").rank())).variance, c.result())};
}

// aten::std
Values std_(Emit& e, const Call& c) {
  return {finish(e, e.sqrt(moments(e, c, reduced_dims(c, c.tensor("self").rank())).variance), c.result())};
}

// aten::var_mean
Values var_mean(Emit& e, const Call& c) {
  Moments m = moments(e, c, reduced_dims(c, c.tensor("self").rank()));
  return {finish(e, m.variance, c.result(0)), finish(e, m.mean, c.result(1))};
}

// aten::std_mean
Values std_mean(Emit& e, const Call& c) {
  Moments m = moments(e, c, reduced_dims(c, c.tensor("self").rank()));
  return {finish(e, e.sqrt(m.variance), c.result(0)), finish(e, m.mean, c.result(1))};
}

// Returns the p-norm of x over dims. p is part of the program: each of 0, 1, 2 and ±inf has its own formula.
Value p_norm(Emit& e, const Value& self, double p, const Dims& dims) {
  Value x = self;
  if (p == 2 && !hlo::is_complex(x.element())) return e.sqrt(e.sum(e.mul(x, x), dims));
  x = e.unary("abs", x);
  if (p == 0) return e.sum(e.to(e.to(x, ElementType::kPred), x.element()), dims);
  if (p == 1) return e.sum(x, dims);
  if (p == 2) return e.sqrt(e.sum(e.mul(x, x), dims));
  if (p == INFINITY) {
    Value top = e.max(x, dims);
    return e.maximum(top, e.zeros(top.type));  // the norm of nothing is 0
  }
  if (p == -INFINITY) return e.min(x, dims);
  Value total = e.sum(e.binary("power", x, e.splat(p, x.type)), dims);
  return e.binary("power", total, e.splat(1 / p, total.type));
}

// aten::linalg_vector_norm, aten::norm: the input is cast to `dtype` first if there is one.
Values vector_norm(Emit& e, const Call& c, std::string_view order, const Dims& dims) {
  Value x = c.tensor("self");
  const ElementType result = e.element(c.result());
  if (!hlo::is_complex(x.element())) x = e.to(x, result);
  if (x.element() == ElementType::kC64 && result == ElementType::kF64) x = e.to(x, ElementType::kC128);
  x = e.to(x, Emit::compute_element(x.element()));
  double p = c.has(order) ? c.constant_scalar(order).toDouble() : 2.0;
  return {finish(e, p_norm(e, x, p, dims), c.result())};
}

Values linalg_vector_norm(Emit& e, const Call& c) {
  return vector_norm(e, c, "ord", reduced_dims(c, c.tensor("self").rank()));
}

Values norm(Emit& e, const Call& c) { return vector_norm(e, c, "p", reduced_dims(c, c.tensor("self").rank())); }

// aten::logsumexp: shifted by the maximum, unless that is infinite.
Values logsumexp(Emit& e, const Call& c) {
  Value x = widened(e, c);
  if (hlo::is_complex(x.element())) throw Unsupported("logsumexp of complex numbers");
  Dims dims = reduced_dims(c, x.rank());
  Value top = e.max(x, dims);
  Value finite = e.unary("is_finite", top);
  Value shift = e.select(finite, top, e.zeros(top.type));
  const auto back = [&](const Value& v) { return e.broadcast_reduced(v, dims, x.dims()); };
  Value total = e.sum(e.exp(e.sub(e.rounded_below(x, back(top)), back(shift))), dims);
  return {finish(e, e.add(e.log(total), shift), c.result())};
}

}  // namespace

void add_reduction_rules(RuleTable& rules) {
  rules.add("aten::sum", sum);
  rules.add("aten::sum.dim_IntList", sum);
  rules.add("aten::nansum", nansum, kNotComplex);
  rules.add("aten::mean", mean);
  rules.add("aten::mean.dim", mean);
  rules.add("aten::prod", prod);
  rules.add("aten::prod.dim_int", prod);
  rules.add("aten::amax", amax, kNotComplex);
  rules.add("aten::amin", amin, kNotComplex);
  rules.add("aten::max", amax, kNotComplex);
  rules.add("aten::min", amin, kNotComplex);
  rules.add("aten::aminmax", aminmax, kNotComplex);
  rules.add("aten::any", any);
  rules.add("aten::any.dim", any);
  rules.add("aten::any.dims", any);
  rules.add("aten::all", all);
  rules.add("aten::all.dim", all);
  rules.add("aten::all.dims", all);
  rules.add("aten::count_nonzero", count_nonzero);
  rules.add("aten::count_nonzero.dim_IntList", count_nonzero);
  rules.add_composite("aten::var.correction", var);
  rules.add_composite("aten::std.correction", std_);
  rules.add_composite("aten::var_mean.correction", var_mean);
  rules.add_composite("aten::std_mean.correction", std_mean);
  rules.add_composite("aten::linalg_vector_norm", linalg_vector_norm);
  rules.add("aten::norm.Scalar", norm);
  rules.add("aten::norm.ScalarOpt_dim", norm);
  rules.add("aten::norm.ScalarOpt_dim_dtype", norm);
  rules.add("aten::norm.ScalarOpt_dtype", norm);
  rules.add_composite("aten::logsumexp", logsumexp);
  add_arg_reduction_rules(rules);
  add_scan_rules(rules);
}

}  // namespace tpjrt::ops
