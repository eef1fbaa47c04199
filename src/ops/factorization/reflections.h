// Householder's reflections in the form of LAPACK's geqrf: 1 - tau v v^H each, with v below the diagonal of a column
// (1 on it).
#pragma once

#include "ops/rule/emit.h"

namespace tpjrt::ops::matrices {

struct Reflections {
  Value packed;  // [batch, rows, columns]: R on and above the diagonal, each v below it
  Value tau;     // [batch, count]
};

// Returns the reflections that make each matrix upper triangular.
Reflections reflections_of(Emit& e, const Value& matrices);
// Returns Q x, or Q^H x: the product of all reflections times [batch, rows, columns].
Value reflected(Emit& e, const Reflections& reflections, const Value& x, bool adjoint = false);

}  // namespace tpjrt::ops::matrices
