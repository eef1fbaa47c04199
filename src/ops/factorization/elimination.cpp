// LU with partial pivoting, and the solvers that use it.
#include <algorithm>

#include "ops/factorization/matrices.h"
#include "ops/rule/dims.h"
#include "ops/rule/expression.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace {

using hlo::Comparison;
using matrices::adjoint;
using matrices::column_of;
using matrices::columns_of;
using matrices::places;
using matrices::rows_of;
using matrices::rows_taken;
using matrices::shaped_as;

// Returns the number of columns that are eliminated one by one; products do the rest. A panel takes XLA:CPU half a
// second to compile, whatever its size, so there are four at most.
int64_t panel_of(int64_t columns) { return std::max<int64_t>(128, (columns + 3) / 4); }

// The factors of [batch, rows, columns]. Pivots count from 0; `order` says which row of the matrix is where.
struct Factors {
  Value lu, pivots, order;
};

Value rows_numbered(Emit& e, int64_t batch, int64_t rows) { return e.iota({ElementType::kS32, {batch, rows}}, 1); }

// Returns x [batch, rows, columns] with two rows of each matrix exchanged, which `one` and `other` [batch, rows]
// mark.
Value exchanged(Emit& e, const Value& x, const Value& one, const Value& other) {
  const auto over = [&](const Value& mark) { return e.broadcast_in_dim(mark, x.dims(), {0, 1}); };
  const auto row_at = [&](const Value& mark) {
    return e.broadcast_in_dim(matrices::one_of(e, over(mark), x, 1), x.dims(), {0, 2});
  };
  return e.select(over(one), row_at(other), e.select(over(other), row_at(one), x));
}

// Returns the first row from j on whose number in the column is largest, by LAPACK's measure: [batch].
Value pivot_of(Emit& e, const Value& column, const Value& j) {
  const Dims& dims = column.dims();
  const Value row = e.iota({ElementType::kS32, dims}, 1), from = e.broadcast_in_dim(j, dims, {});
  const Expression re{&e, matrices::real_part(e, column)}, im{&e, matrices::imaginary_part(e, column)};
  const Expression size = hlo::is_complex(column.element()) ? abs(re) + abs(im) : abs(re);
  const Expression known = where(size.with(e.isnan(size.value)), 0, size);
  const Expression left = where(size.with(e.compare(Comparison::kGe, row, from)), known, -1);
  const Value largest = e.broadcast_in_dim(e.max(left.value, {1}), dims, {0});
  const Value none = e.constant(dims[1], row.type);
  return e.min(e.select(e.compare(Comparison::kEq, left.value, largest), row, none), {1});
}

// Eliminates column by column.
Factors eliminated(Emit& e, const Value& panel) {
  const int64_t batch = panel.dim(0), rows = panel.dim(1), columns = panel.dim(2), count = std::min(rows, columns);
  const Value numbered = rows_numbered(e, batch, rows);
  const auto step = [&](const Value& j, const Values& state) {
    const Value zero = e.zeros(j.type);
    const Value pivot = pivot_of(e, column_of(e, state[0], j), j);
    const Value here = places(e, {batch, rows}, 1, Comparison::kEq, j);
    const Value there = e.compare(Comparison::kEq, numbered, e.broadcast_in_dim(pivot, {batch, rows}, {0}));
    const Value x = exchanged(e, state[0], here, there);
    const Value order = e.reshape(exchanged(e, e.reshape(state[2], {batch, rows, 1}), here, there), {batch, rows});
    const Value column = column_of(e, x, j);
    const Value head = e.broadcast_in_dim(matrices::one_of(e, here, column, 1), column.dims(), {0});
    const Value below = e.compare(Comparison::kGt, numbered, e.broadcast_in_dim(j, {batch, rows}, {}));
    const Value divided = e.binary("and", below, e.compare(Comparison::kNe, head, e.zeros(head.type)));
    const Value factor = e.select(divided, e.div(column, head), column);
    const Value row = e.reshape(e.dynamic_slice(x, {zero, j, zero}, {batch, 1, columns}), {batch, columns});
    const Value taken = e.mul(e.broadcast_in_dim(factor, x.dims(), {0, 1}), e.broadcast_in_dim(row, x.dims(), {0, 2}));
    const Value numbers = e.iota({ElementType::kS32, x.dims()}, 2), at_j = e.broadcast_in_dim(j, x.dims(), {});
    const Value lower = e.broadcast_in_dim(below, x.dims(), {0, 1});
    const Value rest = e.binary("and", lower, e.compare(Comparison::kGt, numbers, at_j));
    const Value is_column = e.compare(Comparison::kEq, numbers, at_j);
    const Value next =
        e.select(is_column, e.broadcast_in_dim(factor, x.dims(), {0, 1}), e.select(rest, e.sub(x, taken), x));
    const Value is_pivot = places(e, {batch, count}, 1, Comparison::kEq, j);
    return Values{next, e.select(is_pivot, e.broadcast_in_dim(pivot, {batch, count}, {0}), state[1]), order};
  };
  const Values made =
      matrices::for_each(e, count, {panel, e.zeros({ElementType::kS32, {batch, count}}), numbered}, step);
  return {made[0], made[1], made[2]};
}

Value placed(Emit& e, const Value& x, const Value& update, int64_t row, int64_t column) {
  const Type counter{ElementType::kS32, {}};
  return e.dynamic_update_slice(x, update, {e.zeros(counter), e.constant(row, counter), e.constant(column, counter)});
}

Value ordered(Emit& e, const Value& numbers, const Value& order) {
  const Dims& dims = numbers.dims();
  return e.reshape(rows_taken(e, e.reshape(numbers, {dims[0], dims[1], 1}), order), dims);
}

// Factors panel by panel.
Factors factors_of(Emit& e, const Value& matrix) {
  const int64_t batch = matrix.dim(0), rows = matrix.dim(1), columns = matrix.dim(2), count = std::min(rows, columns);
  Factors all{matrix, e.zeros({ElementType::kS32, {batch, count}}), rows_numbered(e, batch, rows)};
  if (matrix.type.elements() == 0) return all;
  Values pivots;
  const int64_t width = panel_of(count);
  for (int64_t i = 0; i < count; i += width) {
    const int64_t end = std::min(i + width, count);
    const Value below = rows_of(e, all.lu, i, rows);
    const Factors panel = eliminated(e, columns_of(e, below, i, end));
    pivots.push_back(e.add(panel.pivots, e.constant(i, panel.pivots.type)));
    const Value moved = ordered(e, e.slice_dim(all.order, 1, i, rows), panel.order);
    all.order = i == 0 ? moved : e.concatenate({e.slice_dim(all.order, 1, 0, i), moved}, 1);
    if (i > 0) all.lu = placed(e, all.lu, rows_taken(e, columns_of(e, below, 0, i), panel.order), i, 0);
    all.lu = placed(e, all.lu, panel.lu, i, i);
    if (end == columns) continue;
    const Value right = rows_taken(e, columns_of(e, below, end, columns), panel.order);
    const Value corner = rows_of(e, panel.lu, 0, end - i);
    const Value upper = e.triangular_solve(corner, rows_of(e, right, 0, end - i), true, true, true, "NO_TRANSPOSE");
    all.lu = placed(e, all.lu, upper, i, end);
    if (end == rows) continue;
    const Value taken = matrices::product(e, rows_of(e, panel.lu, end - i, rows - i), upper);
    all.lu = placed(e, all.lu, e.sub(rows_of(e, right, end - i, rows - i), taken), end, end);
  }
  all.pivots = e.concatenate(pivots, 1);
  return all;
}

// Returns the order of rows after the exchanges that these pivots describe.
Value order_of(Emit& e, const Value& pivots, int64_t rows) {
  const int64_t batch = pivots.dim(0), count = pivots.dim(1);
  const Value numbered = rows_numbered(e, batch, rows);
  if (numbered.type.elements() == 0) return numbered;
  const auto step = [&](const Value& j, const Values& state) {
    const Value pivot = e.dynamic_slice(pivots, {e.zeros(j.type), j}, {batch, 1});
    const Value there = e.compare(Comparison::kEq, numbered, e.broadcast_in_dim(pivot, {batch, rows}, {0, 1}));
    const Value order = e.reshape(state[0], {batch, rows, 1});
    return Values{
        e.reshape(exchanged(e, order, places(e, {batch, rows}, 1, Comparison::kEq, j), there), {batch, rows})};
  };
  return matrices::for_each(e, count, {numbered}, step)[0];
}

// Returns where each row has gone: [batch, rows].
Value inverse_of(Emit& e, const Value& order) {
  const int64_t batch = order.dim(0), rows = order.dim(1);
  const Type all{ElementType::kS32, {batch, rows, rows}};  // [i, j]: is row i at j?
  const Value is_at = e.compare(Comparison::kEq, e.broadcast_in_dim(order, all.dims, {0, 2}), e.iota(all, 1));
  return matrices::one_of(e, is_at, e.iota(all, 2), 2);
}

// Returns the number of the first pivot that is zero, counted from 1, or 0: [batch].
Value info_of(Emit& e, const Value& lu) {
  const Type numbers{ElementType::kS32, {lu.dim(0), std::min(lu.dim(1), lu.dim(2))}};
  if (numbers.dims[1] == 0) return e.zeros({ElementType::kS32, {lu.dim(0)}});
  const Value pivots = matrices::diagonal(e, lu), none = e.constant(numbers.dims[1] + 1, numbers);
  const Value is_zero = e.compare(Comparison::kEq, pivots, e.zeros(pivots.type));
  const Value first = e.min(e.select(is_zero, e.add(e.iota(numbers, 1), e.ones(numbers)), none), {1});
  const Value found = e.compare(Comparison::kLe, first, e.constant(numbers.dims[1], first.type));
  return e.select(found, first, e.zeros(first.type));
}

// Returns X of A X = b, or of A^H X = b.
Value solved(Emit& e, const Factors& factors, const Value& b, bool of_adjoint) {
  if (b.type.elements() == 0) return b;
  const Value& lu = factors.lu;
  if (of_adjoint) {
    const Value y = e.triangular_solve(lu, b, true, false, false, "ADJOINT");
    return rows_taken(e, e.triangular_solve(lu, y, true, true, true, "ADJOINT"), inverse_of(e, factors.order));
  }
  const Value y = e.triangular_solve(lu, rows_taken(e, b, factors.order), true, true, true, "NO_TRANSPOSE");
  return e.triangular_solve(lu, y, true, false, false, "NO_TRANSPOSE");
}

// Likewise, or X of X A = b, where b may have another batch. `dims` of lu and b are the tensors' own.
Value solved_with_batches(Emit& e, const Factors& factors, const Dims& dims, const Value& b, const Dims& result,
                          bool left, bool of_adjoint) {
  const Value lu = matrices::with_batch_of(e, e.reshape(factors.lu, dims), result);
  Dims lines(dims.begin(), dims.end() - 1), wide(result.begin(), result.end() - 2);
  wide.push_back(lines.back());
  const Value order = e.broadcast_to(e.reshape(factors.order, lines), wide);
  const Value stacked = matrices::stacked(e, lu);
  const Factors all{stacked, {}, e.reshape(order, {stacked.dim(0), lines.back()})};
  const Value right = matrices::stacked(e, matrices::with_batch_of(e, b, result));
  if (left) return solved(e, all, right, of_adjoint);
  return adjoint(e, solved(e, all, adjoint(e, right), !of_adjoint));
}

Value from_one(Emit& e, const Value& pivots) { return e.add(pivots, e.ones(pivots.type)); }

void check_pivoting(const Call& c) {
  if (!c.boolean("pivot")) throw Mistake("LU without pivoting is not implemented");
}

void check_errors_are_left(const Call& c) {
  if (c.boolean("check_errors")) throw Unsupported("a program can't raise what a matrix's factors show");
}

Factors factors_of_tensor(Emit& e, const Value& x) {
  matrices::check_numbers(x);
  return factors_of(e, matrices::stacked(e, x));
}

// aten::linalg_lu_factor_ex
Values linalg_lu_factor_ex(Emit& e, const Call& c) {
  check_pivoting(c);
  check_errors_are_left(c);
  const Factors made = factors_of_tensor(e, c.tensor("A"));
  return {shaped_as(e, made.lu, c, 0), shaped_as(e, from_one(e, made.pivots), c, 1),
          shaped_as(e, info_of(e, made.lu), c, 2)};
}

Value lower_of(Emit& e, const Value& lu) {
  const Value left = columns_of(e, lu, 0, std::min(lu.dim(1), lu.dim(2)));
  return e.select(matrices::on_diagonal(e, left.dims()), e.ones(left.type), matrices::half_of(e, left, true));
}

Value upper_of(Emit& e, const Value& lu) {
  return matrices::half_of(e, rows_of(e, lu, 0, std::min(lu.dim(1), lu.dim(2))), false);
}

// Returns P of P L U = A: 1 where row order[j] is at j.
Value permutation_of(Emit& e, const Value& order, ElementType element) {
  const Dims dims{order.dim(0), order.dim(1), order.dim(1)};
  const Value rows = e.iota({ElementType::kS32, dims}, 1);
  return e.convert(e.compare(Comparison::kEq, rows, e.broadcast_in_dim(order, dims, {0, 2})), element);
}

// aten::linalg_lu
Values linalg_lu(Emit& e, const Call& c) {
  check_pivoting(c);
  const Factors made = factors_of_tensor(e, c.tensor("A"));
  const Value p = permutation_of(e, made.order, made.lu.element());
  return {shaped_as(e, p, c, 0), shaped_as(e, lower_of(e, made.lu), c, 1), shaped_as(e, upper_of(e, made.lu), c, 2)};
}

// Returns LU and pivots from their tensors.
Factors given_factors(Emit& e, const Value& lu, const Value& pivots) {
  const Value stacked = matrices::stacked(e, lu);
  const Value given = e.convert(e.reshape(pivots, {stacked.dim(0), pivots.dims().back()}), ElementType::kS32);
  const Value from_zero = e.sub(given, e.ones(given.type));
  return {stacked, from_zero, order_of(e, from_zero, stacked.dim(1))};
}

// aten::lu_unpack
Values lu_unpack(Emit& e, const Call& c) {
  const Value lu = c.tensor("LU_data"), pivots = c.tensor("LU_pivots");
  matrices::check_numbers(lu);
  Values all;
  for (size_t i = 0; i < 3; ++i) all.push_back(e.zeros(e.type_of(c.result(i))));
  const Value stacked = matrices::stacked(e, lu);
  if (c.boolean("unpack_pivots")) {
    all[0] = shaped_as(e, permutation_of(e, given_factors(e, lu, pivots).order, lu.element()), c, 0);
  }
  if (c.boolean("unpack_data")) {
    all[1] = shaped_as(e, lower_of(e, stacked), c, 1);
    all[2] = shaped_as(e, upper_of(e, stacked), c, 2);
  }
  return all;
}

// aten::linalg_lu_solve
Values linalg_lu_solve(Emit& e, const Call& c) {
  const Value lu = c.tensor("LU");
  matrices::check_numbers(lu);
  const Factors given = given_factors(e, lu, c.tensor("pivots"));
  const Value x = solved_with_batches(e, given, lu.dims(), c.tensor("B"), e.type_of(c.result()).dims, c.boolean("left"),
                                      c.boolean("adjoint"));
  return {shaped_as(e, x, c, 0)};
}

// aten::linalg_inv_ex
Values linalg_inv_ex(Emit& e, const Call& c) {
  check_errors_are_left(c);
  const Factors made = factors_of_tensor(e, c.tensor("A"));
  const Value inverse = solved(e, made, matrices::identity(e, made.lu.type), false);
  return {shaped_as(e, inverse, c, 0), shaped_as(e, info_of(e, made.lu), c, 1)};
}

// aten::_linalg_solve_ex: B may be vectors.
Values linalg_solve_ex(Emit& e, const Call& c) {
  check_errors_are_left(c);
  const Value a = c.tensor("A");
  Value b = c.tensor("B");
  const Factors made = factors_of_tensor(e, a);
  Dims result = e.type_of(c.result(0)).dims;
  const bool is_vector =
      b.rank() == 1 || (a.rank() - 1 == b.rank() && std::equal(b.dims().begin(), b.dims().end(), a.dims().begin()));
  if (is_vector) {
    b = e.unsqueeze(b, b.rank());
    result.push_back(1);
  }
  const Value x = solved_with_batches(e, made, a.dims(), b, result, is_vector || c.boolean("left"), false);
  return {shaped_as(e, x, c, 0), shaped_as(e, made.lu, c, 1), shaped_as(e, from_one(e, made.pivots), c, 2),
          shaped_as(e, info_of(e, made.lu), c, 3)};
}

// Returns the factors that a determinant returns along with it: see device/override/linalg.cpp.
Factors factors_of_determinant(Emit& e, const Value& a) {
  return factors_of_tensor(e, hlo::is_complex(a.element()) ? a : matrices::transposed(e, a));
}

// Returns 1 or -1 for each permutation: [batch].
Value sign_of(Emit& e, const Value& pivots, ElementType element) {
  const Value moved = e.convert(e.compare(Comparison::kNe, pivots, e.iota(pivots.type, 1)), ElementType::kS32);
  const Value swaps = e.sum(moved, {1});
  const Value is_odd = e.compare(Comparison::kEq, e.binary("and", swaps, e.ones(swaps.type)), e.ones(swaps.type));
  const Value one = e.ones({element, swaps.dims()});
  return e.select(is_odd, e.neg(one), one);
}

Value multiplied(Emit& e, const Value& x) { return e.reduce("multiply", x, e.ones({x.element(), {}}), {1}); }

// aten::_linalg_det
Values linalg_det(Emit& e, const Call& c) {
  const Factors made = factors_of_determinant(e, c.tensor("A"));
  const Value pivots = matrices::diagonal(e, made.lu);
  const Value result = e.mul(multiplied(e, pivots), sign_of(e, made.pivots, pivots.element()));
  return {shaped_as(e, result, c, 0), shaped_as(e, made.lu, c, 1), shaped_as(e, from_one(e, made.pivots), c, 2)};
}

// aten::_linalg_slogdet
Values linalg_slogdet(Emit& e, const Call& c) {
  const Factors made = factors_of_determinant(e, c.tensor("A"));
  const Value pivots = matrices::diagonal(e, made.lu);
  const Value sign = e.mul(multiplied(e, e.unary("sign", pivots)), sign_of(e, made.pivots, pivots.element()));
  const Value logarithm = e.sum(e.log(e.unary("abs", pivots)), {1});
  return {shaped_as(e, sign, c, 0), shaped_as(e, logarithm, c, 1), shaped_as(e, made.lu, c, 2),
          shaped_as(e, from_one(e, made.pivots), c, 3)};
}

}  // namespace

void add_elimination_rules(RuleTable& rules) {
  rules.add("aten::linalg_lu_factor_ex", linalg_lu_factor_ex, kAlwaysByAten, kInexact);
  rules.add("aten::linalg_lu", linalg_lu, kAlwaysByAten, kInexact);
  rules.add("aten::lu_unpack", lu_unpack, kAlwaysByAten, kInexact);
  rules.add("aten::linalg_lu_solve", linalg_lu_solve, kAlwaysByAten, kInexact);
  rules.add("aten::linalg_inv_ex", linalg_inv_ex, kAlwaysByAten, kInexact);
  rules.add("aten::_linalg_solve_ex", linalg_solve_ex, kAlwaysByAten, kInexact);
  rules.add("aten::_linalg_det", linalg_det, kAlwaysByAten, kInexact);
  rules.add("aten::_linalg_slogdet", linalg_slogdet, kAlwaysByAten, kInexact);
}

}  // namespace tpjrt::ops
