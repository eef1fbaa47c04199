// Helpers for the rules of linear algebra. The last two dimensions of a value are a matrix, those before them a
// batch.
//
// Note [Factors]: StableHLO has Cholesky factors and triangular systems, and no other factorizations. On the CPU,
// programs call LAPACK (Note [Calls of the CPU's kernels]). Elsewhere LU, QR, eigenvalues and singular values are
// loops of plain StableHLO, which any plugin takes. XLA's custom calls "Qr" and "Eigh", which its own compilers
// expand into loops as well, are not used: QR of a column of 1e20 gives NaN and of a column of 1e-25 the column
// itself, and eigenvalues of float64 have half of the digits. The loops here take lengths of scaled numbers, and
// refine the result of rotations by products. Loops work on [batch, rows, columns].
#pragma once

#include "ops/rule/call.h"
#include "ops/rule/emit.h"

namespace tpjrt::ops::matrices {

Value real_part(Emit& e, const Value& x);
Value imaginary_part(Emit& e, const Value& x);  // 0 for real numbers
Value conjugate(Emit& e, const Value& x);
// Returns real numbers as `element`, which may be complex.
Value widened(Emit& e, const Value& x, ElementType element);
Value transposed(Emit& e, const Value& x);
Value adjoint(Emit& e, const Value& x);
// Returns one side of the diagonal, the diagonal included, and zero elsewhere.
Value half_of(Emit& e, const Value& x, bool lower);
// Returns true on the diagonal.
Value on_diagonal(Emit& e, const Dims& dims);
Value identity(Emit& e, const Type& type);

// Merges the leading dimensions into one batch dimension: [batch, rows, columns].
Value stacked(Emit& e, const Value& x);
// Replaces the leading (batch) dimensions of x by those of `like`.
Value with_batch_of(Emit& e, const Value& x, const Dims& like);
// Reshapes to the sizes of one of the call's results.
Value shaped_as(Emit& e, const Value& x, const Call& c, size_t result = 0);
// Compares the positions along `dim` of `dims` with number j, a 0-d s32.
Value places(Emit& e, const Dims& dims, int64_t dim, hlo::Comparison how, const Value& j);

// --- on [batch, rows, columns]
// ------------------------------------------------------------------------------------------
// Returns a b, with all digits of float32.
Value product(Emit& e, const Value& a, const Value& b);
// [batch, min(rows, columns)]
Value diagonal(Emit& e, const Value& x);
// Returns the rows in the order of the row numbers [batch, rows'].
Value rows_taken(Emit& e, const Value& x, const Value& order);
// Returns column j, a 0-d s32: [batch, rows].
Value column_of(Emit& e, const Value& x, const Value& j);
Value rows_of(Emit& e, const Value& x, int64_t begin, int64_t end);
Value columns_of(Emit& e, const Value& x, int64_t begin, int64_t end);
// Returns the elements where `keep` is true, for one element along the dimension, to the bit.
Value one_of(Emit& e, const Value& keep, const Value& x, int64_t dim);
// Returns the Euclidean length of each line along the last dimension, however large or small its numbers are.
// Infinities give NaN.
Value lengths(Emit& e, const Value& x);
// Returns the largest absolute value of each matrix [batch], rounded down to a power of two; 1 where that is 0. A
// complex number counts as the larger of its parts.
Value scale_of(Emit& e, const Value& x);

// Calls f(number, state) for number = 0, 1, … count - 1, a 0-d s32, and returns the last state.
Values for_each(Emit& e, int64_t count, const Values& state,
                const std::function<Values(const Value& number, const Values& state)>& f);

// Throws Mistake for dtypes that LAPACK, and so PyTorch, doesn't support.
void check_numbers(const Value& x);

// Householder's reflections in the form of LAPACK's geqrf: 1 - tau v v^H each, with v below the diagonal of a column
// (1 on it).

struct Reflections {
  Value packed;  // [batch, rows, columns]: R on and above the diagonal, each v below it
  Value tau;     // [batch, count]
};

// Returns the reflections that make each matrix upper triangular.
Reflections reflections_of(Emit& e, const Value& matrices);
// Returns Q x, or Q^H x: the product of all reflections times [batch, rows, columns].
Value reflected(Emit& e, const Reflections& reflections, const Value& x, bool adjoint = false);

}  // namespace tpjrt::ops::matrices
