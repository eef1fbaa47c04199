// Singular values and eigenvalues of Hermitian matrices, by Jacobi's rotations from one side.
//
// Pairs of columns are made orthogonal to each other, half of all columns with the other half in one step, as in a
// tournament in which each meets each (Brent and Luk, 1985), until no pair needs it. The columns' lengths are then
// the singular values, and the same rotations of the identity matrix give V. Columns are rows of [batch, columns,
// rows] here, which are contiguous.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/factorization/matrices.h"
#include "ops/rule/dims.h"
#include "ops/rule/expression.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace {

using hlo::Comparison;
using matrices::adjoint;
using matrices::columns_of;
using matrices::product;
using matrices::real_part;
using matrices::rows_of;
using matrices::shaped_as;
using matrices::transposed;

constexpr int64_t kMostSweeps = 40;  // ten are usually enough

double epsilon_of(const Value& x) {
  return hlo::real_element(x.element()) == ElementType::kF64 ? std::numeric_limits<double>::epsilon()
                                                             : std::numeric_limits<float>::epsilon();
}

Value squares(Emit& e, const Value& x) {
  const Value re = real_part(e, x), im = matrices::imaginary_part(e, x);
  return hlo::is_complex(x.element()) ? e.add(e.mul(re, re), e.mul(im, im)) : e.mul(re, re);
}

// Returns the Frobenius norm of each matrix of numbers near 1: [batch].
Value norm_of(Emit& e, const Value& x) { return e.sqrt(e.sum(squares(e, x), {1, 2})); }

struct Pairs {
  Value top, bottom;  // [batch, pairs, numbers]
};

// Returns the next round's pairs: the first stays, the others go around.
Pairs next_round(Emit& e, const Pairs& now) {
  const int64_t pairs = now.top.dim(1);
  if (pairs == 1) return now;
  return {
      e.concatenate({rows_of(e, now.top, 0, 1), rows_of(e, now.bottom, 0, 1), rows_of(e, now.top, 1, pairs - 1)}, 1),
      e.concatenate({rows_of(e, now.bottom, 1, pairs), rows_of(e, now.top, pairs - 1, pairs)}, 1)};
}

// Makes the first `length` numbers of each pair orthogonal. Returns how many pairs were not [0-d, s32]. A length
// below `floor` [batch] counts as rounding.
std::pair<Pairs, Value> rotated(Emit& e, const Pairs& now, int64_t length, const Value& floor) {
  const Value p = columns_of(e, now.top, 0, length), q = columns_of(e, now.bottom, 0, length);
  const ElementType element = p.element();
  const Dims numbers{p.dim(0), p.dim(1)};
  const Expression a{&e, e.sum(squares(e, p), {2})}, b{&e, e.sum(squares(e, q), {2})};
  const Value product = e.mul(matrices::conjugate(e, p), q);
  const Value inner = e.reduce("add", product, e.zeros({element, {}}), {2});
  const Expression size = a.with(e.unary("abs", inner));
  const Expression least = a.with(e.broadcast_in_dim(floor, numbers, {0}));
  const auto long_side = [&](const Expression& x) { return maximum(x.with(e.sqrt(x.value)), least); };
  const double tolerance = epsilon_of(p) * std::max(1.0, std::sqrt(static_cast<double>(length)) / 8);
  const Expression turns = size > long_side(a) * long_side(b) * tolerance;
  const Expression known = where(turns, hlo::is_complex(element) ? size : a.with(inner), 1);
  const Expression half = (b - a) / (known * 2.0), root = a.with(e.sqrt((half * half + 1.0).value));
  const Expression tangent = where(turns, where(half >= 0, 1, a.number(-1)) / (abs(half) + root), 0);
  const Expression cosine = 1 / a.with(e.sqrt((tangent * tangent + 1.0).value)), sine = cosine * tangent;
  const auto over = [&](const Value& x) {
    return e.broadcast_in_dim(matrices::widened(e, x, element), now.top.dims(), {0, 1});
  };
  Value rotated = now.bottom;
  if (hlo::is_complex(element)) {  // makes the inner product real
    const Value direction = e.div(matrices::conjugate(e, inner), matrices::widened(e, known.value, element));
    const Value phase = e.select(turns.value, direction, e.ones(direction.type));
    rotated = e.mul(rotated, e.broadcast_in_dim(phase, now.top.dims(), {0, 1}));
  }
  const Value c = over(cosine.value), s = over(sine.value);
  const Pairs next{e.sub(e.mul(c, now.top), e.mul(s, rotated)), e.add(e.mul(s, now.top), e.mul(c, rotated))};
  return {next, e.sum(e.convert(turns.value, ElementType::kS32), {0, 1})};
}

// g [batch, n, rows], whose rows are made orthogonal, and v [batch, n, any], to which the same rotations are applied.
struct Rotated {
  Value g, v;
};

Rotated made_orthogonal(Emit& e, const Rotated& given) {
  const int64_t batch = given.g.dim(0), n = given.g.dim(1), length = given.g.dim(2);
  if (n < 2 || given.g.type.elements() == 0) return given;
  Value all = e.concatenate({given.g, given.v}, 2);
  if (n % 2) all = e.concatenate({all, e.zeros({all.element(), {batch, 1, all.dim(2)}})}, 1);  // zeros never rotate
  const int64_t pairs = all.dim(1) / 2;
  const Type counter{ElementType::kS32, {}};
  const Value norm = norm_of(e, given.g);
  const Value floor = e.mul(norm, e.splat(epsilon_of(given.g), norm.type));
  const auto round = [&](const Value&, const Values& state) {
    const auto [next, count] = rotated(e, {state[0], state[1]}, length, floor);
    const Pairs moved = next_round(e, next);
    return Values{moved.top, moved.bottom, e.add(state[2], count)};
  };
  const auto go_on = [&](const Values& state) {
    const Value more = e.compare(Comparison::kGt, state[3], e.zeros(counter));
    return Values{e.binary("and", more, e.compare(Comparison::kLt, state[0], e.constant(kMostSweeps, counter)))};
  };
  const auto sweep = [&](const Values& state) {
    Values next = matrices::for_each(e, 2 * pairs - 1, {state[1], state[2], e.zeros(counter)}, round);
    next.insert(next.begin(), e.add(state[0], e.ones(counter)));
    return next;
  };
  const Values last = e.while_loop(
      {e.zeros(counter), rows_of(e, all, 0, pairs), rows_of(e, all, pairs, 2 * pairs), e.ones(counter)}, go_on, sweep);
  const Value done = rows_of(e, e.concatenate({last[1], last[2]}, 1), 0, n);  // a whole sweep ends as it began
  return {columns_of(e, done, 0, length), columns_of(e, done, length, done.dim(2))};
}

// Returns 1 - v v^H for the rows of v.
Value left_of_identity(Emit& e, const Value& v) {
  const Value squared = product(e, v, adjoint(e, v));
  return e.sub(matrices::identity(e, squared.type), squared);
}

Value halved(Emit& e, const Value& x) {
  const Value half = e.splat(0.5, {hlo::real_element(x.element()), x.dims()});
  return e.mul(x, matrices::widened(e, half, x.element()));
}

// Returns v, whose rows have length 1 and are orthogonal up to rounding, with most of the rounding removed by
// Newton's step.
Value straightened(Emit& e, const Value& v) { return e.add(v, product(e, halved(e, left_of_identity(e, v)), v)); }

Value over_matrix(Emit& e, const Value& x, const Value& like) {
  return matrices::widened(e, e.broadcast_in_dim(x, like.dims(), {0}), like.element());
}

Value ordered_values(Emit& e, const Value& values, const Value& order) {
  const Dims& dims = values.dims();
  return e.reshape(matrices::rows_taken(e, e.reshape(values, {dims[0], dims[1], 1}), order), dims);
}

// Returns the order that sorts [batch, n].
Value order_of_values(Emit& e, const Value& values, Comparison first) {
  const Type numbers{ElementType::kS32, values.dims()};
  return e.sort({values, e.iota(numbers, 1)}, 1, true,
                [&](const Values& x) { return Values{e.compare(first, x[0], x[1])}; })[1];
}

// Returns x / |x|, and 1 for 0.
Value direction_of(Emit& e, const Value& x) {
  return e.select(e.compare(Comparison::kEq, x, e.zeros(x.type)), e.ones(x.type), e.unary("sign", x));
}

void require_finite(Emit& e, const Value& x, std::string message) {
  const Value parts =
      e.binary("and", e.unary("is_finite", real_part(e, x)), e.unary("is_finite", matrices::imaginary_part(e, x)));
  e.require_all(parts, std::move(message), /*linalg_error=*/true);
}

struct Singular {
  Value u, s,
      v;  // u [batch, rows, rows or n], s [batch, n], v [batch, n, n]: its rows are the singular vectors, not conjugated
};

// Decomposes matrices with at least one column and no more columns than rows.
Singular singular_of(Emit& e, const Value& given, bool vectors, bool full) {
  const int64_t batch = given.dim(0), rows = given.dim(1), n = given.dim(2);
  const Value scale = matrices::scale_of(e, given);
  const Value a = e.div(given, over_matrix(e, scale, given));
  const matrices::Reflections first = rows > n ? matrices::reflections_of(e, a) : matrices::Reflections{};
  const Value square = rows > n ? matrices::half_of(e, rows_of(e, first.packed, 0, n), false) : a;
  const Value columns = transposed(e, square);
  Rotated rotated{columns, vectors ? matrices::identity(e, columns.type) : columns_of(e, columns, 0, 0)};
  rotated = made_orthogonal(e, rotated);
  if (vectors) {  // repeated on the nearly orthogonal result, because rounding has accumulated
    const Value v = straightened(e, rotated.v);
    rotated = made_orthogonal(e, {product(e, v, columns), v});
    rotated.v = straightened(e, rotated.v);
    rotated.g = product(e, rotated.v, columns);
  }
  const Value lengths = matrices::lengths(e, rotated.g);
  const Value order = order_of_values(e, lengths, Comparison::kGt);
  const Value s = e.mul(ordered_values(e, lengths, order), e.broadcast_in_dim(scale, {batch, n}, {0}));
  if (!vectors) return {{}, s, {}};
  // The columns over their lengths would be U, except those of length 0. The reflections of orthogonal columns give
  // their directions, and complete the others.
  const Value g = transposed(e, matrices::rows_taken(e, rotated.g, order));
  const matrices::Reflections second = matrices::reflections_of(e, g);
  const Value small = matrices::reflected(e, second, matrices::identity(e, g.type));
  const Value directions = direction_of(e, matrices::diagonal(e, second.packed));
  Value u = e.mul(small, e.broadcast_in_dim(directions, small.dims(), {0, 2}));
  if (rows > n) {
    const int64_t width = full ? rows : n;
    const Type counter{ElementType::kS32, {}};
    const Value eye = matrices::identity(e, {u.element(), {batch, rows, width}});
    const Value zero = e.zeros(counter);
    u = matrices::reflected(e, first, e.dynamic_update_slice(eye, u, {zero, zero, zero}));
  }
  return {u, s, matrices::rows_taken(e, rotated.v, order)};
}

// aten::_linalg_svd
Values linalg_svd(Emit& e, const Call& c) {
  const Value x = c.tensor("A");
  matrices::check_numbers(x);
  const bool vectors = c.boolean("compute_uv"), full = c.boolean("full_matrices");
  const Type u_type = e.type_of(c.result(0)), v_type = e.type_of(c.result(2));
  if (x.type.elements() == 0) {
    const auto eye = [&](const Type& type) { return type.elements() ? matrices::identity(e, type) : e.zeros(type); };
    return {eye(u_type), e.zeros(e.type_of(c.result(1))), eye(v_type)};
  }
  require_finite(e, x,
                 "linalg.svd: The algorithm failed to converge because the input matrix contained non-finite values.");
  const Value a = matrices::stacked(e, x);
  const bool is_wide = a.dim(1) < a.dim(2);
  const Singular found = singular_of(e, is_wide ? adjoint(e, a) : a, vectors, full);
  const Value s = shaped_as(e, found.s, c, 1);
  if (!vectors) return {e.zeros(u_type), s, e.zeros(v_type)};
  // g = a V, and `v` has V^T: A = U S (V)^H.
  const Value v_adjoint = matrices::conjugate(e, found.v);
  if (!is_wide) return {shaped_as(e, found.u, c, 0), s, shaped_as(e, v_adjoint, c, 2)};
  return {shaped_as(e, transposed(e, found.v), c, 0), s, shaped_as(e, adjoint(e, found.u), c, 2)};
}

// Returns eigenvectors of the Hermitian a with the error of rounding alone, from those of rotations: one step of
// Ogita and Aishima (2018). v is transposed: its rows are the vectors.
Value refined(Emit& e, const Value& a, const Value& v) {
  const Value rest = left_of_identity(e, matrices::conjugate(e, v));                           // 1 - V^H V
  const Value inner = product(e, matrices::conjugate(e, v), product(e, a, transposed(e, v)));  // V^H A V
  const auto real_diagonal = [&](const Value& x) { return Expression{&e, real_part(e, matrices::diagonal(e, x))}; };
  const Expression values = real_diagonal(inner) / (1 - real_diagonal(rest));
  const Value off = e.select(matrices::on_diagonal(e, inner.dims()), e.zeros(inner.type), inner);
  const Expression noise = values.with(norm_of(e, off)) + values.with(norm_of(e, a)) * values.with(norm_of(e, rest));
  const auto along = [&](int64_t dim) { return values.with(e.broadcast_in_dim(values.value, inner.dims(), {0, dim})); };
  const Expression columns = along(2), gap = columns - along(1);
  const Expression apart = abs(gap) > values.with(e.broadcast_in_dim((noise * 2.0).value, inner.dims(), {0}));
  const Value by = matrices::widened(e, where(apart, gap, 1).value, a.element());
  const Value all = e.add(inner, e.mul(rest, matrices::widened(e, columns.value, a.element())));
  const Value step = e.select(apart.value, e.div(all, by), halved(e, rest));
  return e.add(v, product(e, transposed(e, step), v));  // V + V step
}

// aten::_linalg_eigh: reads one half of A. A plus a multiple of the identity has no negative eigenvalues, so its
// singular vectors are the eigenvectors.
Values linalg_eigh(Emit& e, const Call& c) {
  const Value x = c.tensor("A");
  matrices::check_numbers(x);
  const bool vectors = c.boolean("compute_v");
  const Type vectors_type = e.type_of(c.result(1));
  if (x.type.elements() == 0) return {e.zeros(e.type_of(c.result(0))), e.zeros(vectors_type)};
  const std::string side = c.string("UPLO");
  const Value half = matrices::half_of(e, matrices::stacked(e, x), side == "L" || side == "l");
  require_finite(e, half,
                 "linalg.eigh: The algorithm failed to converge because the input matrix contained non-finite values.");
  const Value diagonal = matrices::widened(e, real_part(e, half), half.element());
  const Value whole = e.select(matrices::on_diagonal(e, half.dims()), diagonal, e.add(half, adjoint(e, half)));
  const Value scale = matrices::scale_of(e, whole);
  const Value a = e.div(whole, over_matrix(e, scale, whole));
  const Value rows = e.max(e.sum(e.sqrt(squares(e, a)), {2}), {1});
  const Value shift = over_matrix(e, e.minimum(rows, norm_of(e, a)), a);
  const Value eye = matrices::identity(e, a.type);
  const Rotated rotated = made_orthogonal(e, {transposed(e, e.add(a, e.mul(shift, eye))), eye});
  const Value better = refined(e, a, straightened(e, rotated.v));
  const Value v = straightened(e, straightened(e, better));  // twice: the step is long for values that are close
  const Value moved = e.mul(matrices::conjugate(e, v), transposed(e, product(e, a, transposed(e, v))));
  const Value values = real_part(e, e.reduce("add", moved, e.zeros({moved.element(), {}}), {2}));
  const Value order = order_of_values(e, values, Comparison::kLt);
  const Value sorted = e.mul(ordered_values(e, values, order), e.broadcast_in_dim(scale, values.dims(), {0}));
  if (!vectors) return {shaped_as(e, sorted, c, 0), e.zeros(vectors_type)};
  return {shaped_as(e, sorted, c, 0), shaped_as(e, transposed(e, matrices::rows_taken(e, v, order)), c, 1)};
}

}  // namespace

void add_rotation_rules(RuleTable& rules) {
  rules.add("aten::_linalg_svd", linalg_svd, kAlwaysByAten, kInexact);
  rules.add("aten::_linalg_eigh", linalg_eigh, kAlwaysByAten, kInexact);
}

}  // namespace tpjrt::ops
