// What rules of linear algebra share: the last two dimensions of a value are a matrix, those before them a batch.
//
// Note [Factors]: StableHLO has Cholesky factors and triangular systems, and no other factors. On the CPU programs call LAPACK
// (Note [Calls of the CPU's kernels]). Everywhere else LU, QR, eigenvalues and singular values are loops of plain StableHLO, which
// any plugin takes. XLA has custom calls "Qr" and "Eigh", which its own compilers expand into loops as well. They are not used: of a
// column of 1e20 its QR gives NaN, of one of 1e-25 the column itself, and its eigenvalues of float64 have half of the digits. Here
// lengths are taken of scaled numbers, and what rotations leave is refined by products. Loops work on [batch, rows, columns].
#pragma once

#include "ops/rule/call.h"
#include "ops/rule/emit.h"

namespace tpjrt::ops::matrices {

Value real_part(Emit& e, const Value& x);
Value imaginary_part(Emit& e, const Value& x);  // 0 of real numbers
Value conjugate(Emit& e, const Value& x);
// Real numbers as `element`, which may be complex.
Value widened(Emit& e, const Value& x, ElementType element);
Value transposed(Emit& e, const Value& x);
Value adjoint(Emit& e, const Value& x);
// What lies on one side of the diagonal, the diagonal included, and zero elsewhere.
Value half_of(Emit& e, const Value& x, bool lower);
// True on the diagonal.
Value on_diagonal(Emit& e, const Dims& dims);
Value identity(Emit& e, const Type& type);

// With one dimension for the whole batch: [batch, rows, columns].
Value stacked(Emit& e, const Value& x);
// The leading (batch) dimensions of x replaced by those of `like`.
Value with_batch_of(Emit& e, const Value& x, const Dims& like);
// In the sizes of one of the call's results.
Value shaped_as(Emit& e, const Value& x, const Call& c, size_t result = 0);
// How the places along `dim` of `dims` stand to number j, a 0-d s32.
Value places(Emit& e, const Dims& dims, int64_t dim, hlo::Comparison how, const Value& j);

// --- of [batch, rows, columns] ------------------------------------------------------------------------------------------
// a b, with all digits of float32.
Value product(Emit& e, const Value& a, const Value& b);
// [batch, min(rows, columns)]
Value diagonal(Emit& e, const Value& x);
// The rows in the order that [batch, rows'] numbers of rows say.
Value rows_taken(Emit& e, const Value& x, const Value& order);
// Column j, a 0-d s32: [batch, rows].
Value column_of(Emit& e, const Value& x, const Value& j);
Value rows_of(Emit& e, const Value& x, int64_t begin, int64_t end);
Value columns_of(Emit& e, const Value& x, int64_t begin, int64_t end);
// The elements for which `keep` is true of one along the dimension: that one, to the bit.
Value one_of(Emit& e, const Value& keep, const Value& x, int64_t dim);
// The Euclidean length of each line along the last dimension, however large or small its numbers are. Infinities give NaN.
Value lengths(Emit& e, const Value& x);
// The largest of the absolute values, rounded down to a power of two, of each matrix [batch]: 1 where that is 0. Complex numbers
// count by the larger of their parts.
Value scale_of(Emit& e, const Value& x);

// f(number, state) for number = 0, 1, … count - 1, a 0-d s32.
Values for_each(Emit& e, int64_t count, const Values& state,
                const std::function<Values(const Value& number, const Values& state)>& f);

// Throws Mistake where LAPACK, and so PyTorch, has no such numbers.
void check_numbers(const Value& x);

}  // namespace tpjrt::ops::matrices
