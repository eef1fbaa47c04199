// QR, and the other functions of Householder's reflections.
#include "ops/factorization/matrices.h"

#include <algorithm>

#include "ops/rule/dims.h"
#include "ops/rule/expression.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace matrices {
namespace {

using hlo::Comparison;

// Returns (1 - tau v v^H) x. Elements that v and tau leave alone are not computed again.
Value once_reflected(Emit& e, const Value& v, const Value& tau, const Value& x) {
  const Value along = e.dot_general(conjugate(e, v), x, {{0}, {0}, {1}, {1}}, x.element(), "HIGHEST");
  const Value taken = e.mul(e.broadcast_in_dim(e.mul(v, e.broadcast_in_dim(tau, v.dims(), {0})), x.dims(), {0, 1}),
                            e.broadcast_in_dim(along, x.dims(), {0, 2}));
  const Value is_none = e.compare(Comparison::kEq, tau, e.zeros(tau.type));
  const Value stays =
      e.binary("or", e.compare(Comparison::kEq, v, e.zeros(v.type)), e.broadcast_in_dim(is_none, v.dims(), {0}));
  return e.select(e.broadcast_in_dim(stays, x.dims(), {0, 1}), x, e.sub(x, taken));
}

struct Reflection {
  Value v;          // [batch, rows]
  Value tau, beta;  // [batch]; beta is real
};

// Returns the reflection that turns the numbers below number j of a column to zeros, and number j to beta.
Reflection reflection_of(Emit& e, const Value& column, const Value& j) {
  const Dims& dims = column.dims();
  const ElementType element = column.element();
  const Value below = places(e, dims, 1, Comparison::kGt, j), here = places(e, dims, 1, Comparison::kEq, j);
  const Value tail = e.select(below, column, e.zeros(column.type));
  const Value alpha = e.reshape(e.dynamic_slice(column, {e.zeros(j.type), j}, {dims[0], 1}), {dims[0]});
  const Expression re{&e, real_part(e, alpha)}, im{&e, imaginary_part(e, alpha)}, length{&e, lengths(e, tail)};
  const auto number = [&](const Expression& x) { return e.reshape(x.value, {dims[0], 1}); };
  const Expression whole = re.with(lengths(e, e.concatenate({number(re), number(im), number(length)}, 1)));
  const Expression is_done = (length == 0) & (im == 0);
  const Expression is_negative = (re < 0) | ((re == 0) & (1 / re < 0));
  const Expression beta = where(is_done, re, where(is_negative, whole, -whole));
  const auto or_zero = [&](const Expression& x) { return where(is_done, 0, x); };
  const Expression tau = or_zero((beta - re) / beta), tau_im = or_zero(-im / beta);
  // Scales the numbers to near 1, so that the quotient of complex numbers neither overflows nor vanishes.
  const Expression scale = where(is_done | (whole == 0), 1, whole);
  const Expression divisor = where(is_done, 1, (re - beta) / scale);
  const auto by_scale = [&](const Value& x) { return e.div(x, e.broadcast_in_dim(scale.value, dims, {0})); };
  const bool is_complex = hlo::is_complex(element);
  const Value left =
      is_complex ? e.complex(by_scale(real_part(e, tail)), by_scale(imaginary_part(e, tail))) : by_scale(tail);
  const Value right = is_complex ? e.complex(divisor.value, or_zero(im / scale).value) : divisor.value;
  const Value quotient = e.div(left, e.broadcast_in_dim(right, dims, {0}));
  const Value v = e.select(here, e.ones(column.type), e.select(below, quotient, e.zeros(column.type)));
  return {v, is_complex ? e.complex(tau.value, tau_im.value) : tau.value, beta.value};
}

}  // namespace

Reflections reflections_of(Emit& e, const Value& matrices) {
  const int64_t count = std::min(matrices.dim(1), matrices.dim(2));
  const Type taus{matrices.element(), {matrices.dim(0), count}};
  if (matrices.type.elements() == 0) return {matrices, e.zeros(taus)};
  const auto reflect = [&](const Value& j, const Values& state) {
    const Value &packed = state[0], &tau = state[1];
    const Value column = column_of(e, packed, j);
    const Reflection made = reflection_of(e, column, j);
    const Value beta = e.broadcast_in_dim(widened(e, made.beta, column.element()), column.dims(), {0});
    const Value above = places(e, column.dims(), 1, Comparison::kLt, j);
    const Value here = places(e, column.dims(), 1, Comparison::kEq, j);
    const Value kept = e.select(above, column, e.select(here, beta, made.v));
    const Value right = places(e, packed.dims(), 2, Comparison::kGt, j);
    const Value rest = e.select(right, once_reflected(e, made.v, conjugate(e, made.tau), packed), packed);
    const Value is_column = places(e, packed.dims(), 2, Comparison::kEq, j);
    const Value is_tau = places(e, tau.dims(), 1, Comparison::kEq, j);
    return Values{e.select(is_column, e.broadcast_in_dim(kept, packed.dims(), {0, 1}), rest),
                  e.select(is_tau, e.broadcast_in_dim(made.tau, tau.dims(), {0}), tau)};
  };
  const Values made = for_each(e, count, {matrices, e.zeros(taus)}, reflect);
  return {made[0], made[1]};
}

Value reflected(Emit& e, const Reflections& reflections, const Value& x, bool adjoint) {
  const Value& packed = reflections.packed;
  const int64_t count = reflections.tau.dim(1);
  if (x.type.elements() == 0 || count == 0) return x;
  const auto reflect = [&](const Value& number, const Values& state) {
    const Value j = adjoint ? number : e.sub(e.constant(count - 1, number.type), number);
    const Value column = column_of(e, packed, j);
    const Value below = places(e, column.dims(), 1, Comparison::kGt, j);
    const Value here = places(e, column.dims(), 1, Comparison::kEq, j);
    const Value v = e.select(here, e.ones(column.type), e.select(below, column, e.zeros(column.type)));
    const Value tau = e.reshape(e.dynamic_slice(reflections.tau, {e.zeros(j.type), j}, {x.dim(0), 1}), {x.dim(0)});
    return Values{once_reflected(e, v, adjoint ? conjugate(e, tau) : tau, state[0])};
  };
  return for_each(e, count, {x}, reflect)[0];
}

}  // namespace matrices

namespace {

using matrices::Reflections;
using matrices::shaped_as;

// Returns the reflections of two tensors.
Reflections given_reflections(Emit& e, const Value& packed, const Value& tau) {
  const Value stacked = matrices::stacked(e, packed);
  return {stacked, e.reshape(tau, {stacked.dim(0), tau.dims().back()})};
}

// aten::geqrf
Values geqrf(Emit& e, const Call& c) {
  const Value x = c.tensor("self");
  matrices::check_numbers(x);
  const Reflections made = matrices::reflections_of(e, matrices::stacked(e, x));
  return {shaped_as(e, made.packed, c, 0), shaped_as(e, made.tau, c, 1)};
}

// aten::linalg_householder_product
Values householder_product(Emit& e, const Call& c) {
  const Value x = c.tensor("input");
  matrices::check_numbers(x);
  const Reflections given = given_reflections(e, x, c.tensor("tau"));
  return {shaped_as(e, matrices::reflected(e, given, matrices::identity(e, given.packed.type)), c)};
}

// aten::ormqr: Q other, or other Q, or either with Q^H.
Values ormqr(Emit& e, const Call& c) {
  const Value x = c.tensor("self");
  matrices::check_numbers(x);
  const Reflections given = given_reflections(e, x, c.tensor("input2"));
  const Value other = matrices::stacked(e, c.tensor("input3"));
  const bool adjoint = c.boolean("transpose");
  if (c.boolean("left")) return {shaped_as(e, matrices::reflected(e, given, other, adjoint), c)};
  const Value reflected_rows = matrices::reflected(e, given, matrices::adjoint(e, other), !adjoint);
  return {shaped_as(e, matrices::adjoint(e, reflected_rows), c)};
}

// aten::linalg_qr: mode "r" gives no Q.
Values linalg_qr(Emit& e, const Call& c) {
  const Value x = c.tensor("A");
  matrices::check_numbers(x);
  const Type q = e.type_of(c.result(0)), r = e.type_of(c.result(1));
  const Value a = matrices::stacked(e, x);
  const Reflections made = matrices::reflections_of(e, a);
  const int64_t rows = r.dims[r.dims.size() - 2];
  const Value upper = matrices::half_of(e, matrices::rows_of(e, made.packed, 0, rows), false);
  if (c.string("mode") == "r") return {e.zeros(q), shaped_as(e, upper, c, 1)};
  const Value eye = matrices::identity(e, {a.element(), {a.dim(0), a.dim(1), rows}});
  return {shaped_as(e, matrices::reflected(e, made, eye), c, 0), shaped_as(e, upper, c, 1)};
}

}  // namespace

void add_reflection_rules(RuleTable& rules) {
  rules.add("aten::geqrf", geqrf, kAlwaysByAten, kInexact);
  rules.add("aten::linalg_householder_product", householder_product, kAlwaysByAten, kInexact);
  rules.add("aten::ormqr", ormqr, kAlwaysByAten, kInexact);
  rules.add("aten::linalg_qr", linalg_qr, kAlwaysByAten, kInexact);
}

}  // namespace tpjrt::ops
