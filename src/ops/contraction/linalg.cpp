// Linear algebra that StableHLO has: Cholesky, triangular systems, and distances. For LU, QR, eigenvalues and singular values see
// ops/factorization.
#include <cmath>

#include "ops/factorization/matrices.h"
#include "ops/rule/dims.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {

namespace {

using matrices::adjoint;
using matrices::half_of;
using matrices::real_part;
using matrices::with_batch_of;

// Returns the Cholesky factor, with NaN where the input isn't positive definite.
Value cholesky_factor(Emit& e, const Value& x, bool upper) {
  Value factor = half_of(e, e.cholesky(upper ? adjoint(e, x) : x, true), true);
  return upper ? adjoint(e, factor) : factor;
}

// Returns for each matrix the order of its first leading minor that isn't positive, or n where rounding hides it, by
// eliminating one column at a time. Only the lower half of `x` is read.
Value first_bad_minor(Emit& e, const Value& x) {
  const int64_t rank = x.rank(), n = x.dim(rank - 1);
  const ElementType element = x.element();
  const Type counter{ElementType::kS32, {}}, numbers{ElementType::kS32, Dims(x.dims().begin(), x.dims().end() - 2)};
  const auto column_of = [&](const Value& matrices, const Value& k) {
    Values starts(at(rank), e.zeros(counter));
    starts.back() = k;
    Dims sizes = x.dims();
    sizes.back() = 1;
    return e.dynamic_slice(matrices, starts, sizes);
  };
  const auto go_on = [&](const Values& state) {
    return Values{e.compare(hlo::Comparison::kLt, state[0], e.constant(n, counter))};
  };
  const auto eliminate = [&](const Values& state) {
    const Value &k = state[0], &left = state[1], &order = state[2];
    Value column = column_of(left, k);
    Values starts(at(rank), e.zeros(counter));
    starts[at(rank - 2)] = k;
    Dims sizes = column.dims();
    sizes[at(rank - 2)] = 1;
    Value pivot = real_part(e, e.dynamic_slice(column, starts, sizes));
    Value good = e.reshape(e.compare(hlo::Comparison::kGt, pivot, e.zeros(pivot.type)), numbers.dims);
    Value open = e.compare(hlo::Comparison::kEq, order, e.constant(n + 1, numbers));
    Value here = e.broadcast_to(e.add(k, e.ones(counter)), numbers.dims);
    Value next = e.select(e.binary("and", open, e.logical_not(good)), here, order);
    Value all = e.broadcast_to(column, x.dims()), divided = e.div(all, e.broadcast_to(e.to(pivot, element), x.dims()));
    Value taken = e.sub(left, e.mul(divided, e.broadcast_to(adjoint(e, column), x.dims())));
    return Values{e.add(k, e.ones(counter)), taken, next};
  };
  Value order = e.while_loop({e.zeros(counter), x, e.constant(n + 1, numbers)}, go_on, eliminate)[2];
  return e.minimum(order, e.constant(n, numbers));
}

// aten::linalg_cholesky_ex: info is the order of the first leading minor that isn't positive, else 0. XLA fills more
// than the columns after it with NaN, so the order is searched for where a factor has NaN on its diagonal.
Values linalg_cholesky_ex(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const Type info = e.type_of(c.result(1)), none{ElementType::kPred, {}};
  if (x.type.elements() == 0) return {x, e.zeros(info)};
  const bool upper = c.boolean("upper");
  Value factor = cholesky_factor(e, x, upper);
  const int64_t rank = x.rank();
  Value row = e.iota({ElementType::kS32, x.dims()}, rank - 2);
  Value diagonal = e.compare(hlo::Comparison::kEq, row, e.iota({ElementType::kS32, x.dims()}, rank - 1));
  Value bad = e.binary("and", diagonal, e.isnan(real_part(e, factor)));
  Value failed = e.reduce("or", bad, e.constant(0, none), {rank - 2, rank - 1});
  Dims batch;
  for (int64_t d = 0; d < failed.rank(); ++d) batch.push_back(d);
  Value any = e.reduce("or", failed, e.constant(0, none), batch);
  Value order = e.if_else(
      any,
      [&](const Values&) {
        return Values{e.select(failed, first_bad_minor(e, upper ? adjoint(e, x) : x), e.zeros(info))};
      },
      [&](const Values&) { return Values{e.zeros(info)}; })[0];
  return {factor, order};
}

// aten::linalg_solve_triangular: A X = B, or X A = B when not left.
Values linalg_solve_triangular(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  if (result.elements() == 0) return {e.zeros(result)};
  Value a = with_batch_of(e, c.tensor("self"), result.dims), b = with_batch_of(e, c.tensor("B"), result.dims);
  return {e.triangular_solve(a, b, c.boolean("left"), !c.boolean("upper"), c.boolean("unitriangular"), "NO_TRANSPOSE")};
}

// aten::triangular_solve: self is the right-hand side. The second result is A, with the batch of the first.
Values triangular_solve(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result(0));
  Value b = with_batch_of(e, c.tensor("self"), result.dims);
  Value a = e.broadcast_to(c.tensor("A"), e.type_of(c.result(1)).dims);
  if (result.elements() == 0) return {e.zeros(result), a};
  Value wide = with_batch_of(e, a, result.dims);
  return {e.triangular_solve(wide, b, true, !c.boolean("upper"), c.boolean("unitriangular"),
                             c.boolean("transpose") ? "TRANSPOSE" : "NO_TRANSPOSE"),
          a};
}

// Solves A X = b for A with the given Cholesky factor.
Value solve_by_factor(Emit& e, const Value& factor, const Value& b, bool upper) {
  Value y = e.triangular_solve(factor, b, true, !upper, false, upper ? "ADJOINT" : "NO_TRANSPOSE");
  return e.triangular_solve(factor, y, true, !upper, false, upper ? "NO_TRANSPOSE" : "ADJOINT");
}

// aten::cholesky_solve, aten::_cholesky_solve_helper: self is the right-hand side, the other argument the factor.
Values cholesky_solve(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  if (result.elements() == 0) return {e.zeros(result)};
  Value b = with_batch_of(e, c.tensor("self"), result.dims);
  return {solve_by_factor(e, with_batch_of(e, c.arguments[1].tensors[0], result.dims), b, c.boolean("upper"))};
}

// aten::cholesky_inverse
Values cholesky_inverse(Emit& e, const Call& c) {
  Value factor = c.tensor("self");
  if (factor.type.elements() == 0) return {factor};
  const int64_t n = factor.dims().back();
  const Type plane{ElementType::kS32, {n, n}};
  Value eye = e.compare(hlo::Comparison::kEq, e.iota(plane, 0), e.iota(plane, 1));
  Value b = e.broadcast_to(e.convert(eye, factor.element()), factor.dims());
  return {solve_by_factor(e, factor, b, c.boolean("upper"))};
}

// Returns the rows of x1 and x2 against each other, both as [..., P, R, M].
std::pair<Value, Value> row_pairs(Emit& e, const Value& x1, const Value& x2, const Dims& batch) {
  Dims all = batch;
  all.insert(all.end(), {x1.dim(x1.rank() - 2), x2.dim(x2.rank() - 2), x1.dims().back()});
  return {e.broadcast_to(e.unsqueeze(x1, x1.rank() - 1), all), e.broadcast_to(e.unsqueeze(x2, x2.rank() - 2), all)};
}

// Returns Euclidean distances through one matrix product: sqrt(|a|^2 + |b|^2 - 2ab).
Value euclidean_by_product(Emit& e, const Value& x1, const Value& x2) {
  const int64_t rank = x1.rank();
  hlo::DotDimensions dot;
  for (int64_t d = 0; d < rank - 2; ++d) dot.lhs_batch.push_back(d);
  dot.rhs_batch = dot.lhs_batch;
  dot.lhs_contracting = dot.rhs_contracting = {rank - 1};
  Value product = e.dot_general(x1, x2, dot, x1.element(), "HIGHEST");
  auto squares = [&](const Value& x, int64_t missing) {
    return e.broadcast_reduced(e.sum(e.mul(x, x), {rank - 1}), {missing}, product.dims());
  };
  Value total = e.add(squares(x1, rank - 1), squares(x2, rank - 2));
  Value square = e.sub(total, e.add(product, product));
  return e.sqrt(e.maximum(square, e.zeros(square.type)));
}

// aten::_cdist_forward: p is part of the program. Like torch, it takes a matrix product for more than 25 rows.
Values cdist_forward(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  Value x1 = c.tensor("x1"), x2 = c.tensor("x2");
  if (result.elements() == 0 || x1.dims().back() == 0) return {e.zeros(result)};
  const double p = c.real("p");
  const Dims batch(result.dims.begin(), result.dims.end() - 2);
  const int64_t mode = c.optional_integer("compute_mode").value_or(0), last = result.rank();
  const bool many = result.dims[at(last - 2)] > 25 || result.dims[at(last - 1)] > 25;
  if (p == 2 && (mode == 1 || (mode == 0 && many))) {
    return {euclidean_by_product(e, with_batch_of(e, x1, result.dims), with_batch_of(e, x2, result.dims))};
  }
  auto [a, b] = row_pairs(e, x1, x2, batch);
  Value gap = e.unary("abs", e.sub(a, b));
  if (p == 0) return {e.sum(e.to(e.to(gap, ElementType::kPred), gap.element()), {last})};
  if (p == 1) return {e.sum(gap, {last})};
  if (p == 2) return {e.sqrt(e.sum(e.mul(gap, gap), {last}))};
  if (std::isinf(p)) return {e.max(gap, {last})};
  Value total = e.sum(e.binary("power", gap, e.splat(p, gap.type)), {last});
  return {e.binary("power", total, e.splat(1 / p, total.type))};
}

// aten::_cdist_backward: the gradient of x1. Zero distances have none. torch 2.14 names the incoming gradient
// `grad_output`.
Values cdist_backward(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  Value grad = c.tensor(c.has("grad_output") ? "grad_output" : "grad"), distance = c.tensor("cdist");
  const double p = c.real("p");
  if (result.elements() == 0 || distance.type.elements() == 0 || p == 0) return {e.zeros(result)};
  const Dims batch(distance.dims().begin(), distance.dims().end() - 2);
  auto [a, b] = row_pairs(e, c.tensor("x1"), c.tensor("x2"), batch);
  Value difference = e.sub(a, b), gap = e.unary("abs", difference), sign = e.unary("sign", difference);
  const int64_t last = distance.rank();
  auto spread = [&](const Value& x) { return e.broadcast_reduced(x, {last}, gap.dims()); };
  Value g = spread(e.broadcast_to(grad, distance.dims())), d = spread(distance);
  Value zero = e.compare(hlo::Comparison::kEq, d, e.zeros(d.type));
  Value term;
  if (p == 1) {
    term = e.mul(g, sign);
  } else if (std::isinf(p)) {
    Value widest = e.compare(hlo::Comparison::kEq, gap, d);
    term = e.select(widest, e.mul(g, sign), e.zeros(g.type));
  } else {
    if (p < 1) zero = e.binary("or", zero, e.compare(hlo::Comparison::kEq, gap, e.zeros(gap.type)));
    Value ratio =
        p == 2 ? e.div(gap, d)
               : e.div(e.binary("power", gap, e.splat(p - 1, gap.type)), e.binary("power", d, e.splat(p - 1, d.type)));
    term = e.select(zero, e.zeros(g.type), e.mul(e.mul(g, sign), ratio));
  }
  return {e.reshape(e.sum(term, {last - 1}), result.dims)};
}

}  // namespace

void add_linalg_rules(RuleTable& rules) {
  rules.add_composite("aten::linalg_cholesky_ex", linalg_cholesky_ex, kAlwaysByAten, kInexact);
  rules.add_composite("aten::linalg_solve_triangular", linalg_solve_triangular, kByAten, kInexact);
  rules.add_composite("aten::triangular_solve", triangular_solve, kByAten, kInexact);
  rules.add_composite("aten::cholesky_solve", cholesky_solve, kInexact);
  rules.add_composite("aten::_cholesky_solve_helper", cholesky_solve, kInexact);
  rules.add_composite("aten::cholesky_inverse", cholesky_inverse, kInexact);
  rules.add_composite("aten::_cdist_forward", cdist_forward);
  rules.add_composite("aten::_cdist_backward", cdist_backward);
}

}  // namespace tpjrt::ops
