// Householder's reflections, as LAPACK's geqrf leaves them: 1 - tau v v^H each, v below the diagonal of a column (1 on it).
#pragma once

#include "ops/rule/emit.h"

namespace tpjrt::ops::matrices {

struct Reflections {
  Value packed;  // [batch, rows, columns]: R on and above the diagonal, each v below it
  Value tau;     // [batch, count]
};

// Those that make an upper triangle of each matrix.
Reflections reflections_of(Emit& e, const Value& matrices);
// Q x, or Q^H x: all reflections' product times [batch, rows, columns].
Value reflected(Emit& e, const Reflections& reflections, const Value& x, bool adjoint = false);

}  // namespace tpjrt::ops::matrices
