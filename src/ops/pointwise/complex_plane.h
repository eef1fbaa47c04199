// Functions of complex numbers computed by their parts, where XLA's lose what C's keep: the side of a branch cut,
// which the sign of a zero selects, and the digits of small parts.
#pragma once

#include "ops/rule/expression.h"

namespace tpjrt::ops::complex_plane {

Expression exponential(const Expression& z);
Expression square_root(const Expression& z);
Expression power(const Expression& z, const Expression& exponent);
Expression sine(const Expression& z);
Expression cosine(const Expression& z);
Expression hyperbolic_sine(const Expression& z);
Expression hyperbolic_cosine(const Expression& z);
Expression arcsine(const Expression& z);
Expression arccosine(const Expression& z);
Expression arctangent(const Expression& z);
Expression hyperbolic_arcsine(const Expression& z);
Expression hyperbolic_arccosine(const Expression& z);
Expression hyperbolic_arctangent(const Expression& z);

}  // namespace tpjrt::ops::complex_plane
