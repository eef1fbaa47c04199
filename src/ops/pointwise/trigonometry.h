// Sines, cosines and their inverses in float32 that XLA:CPU vectorizes. Its own are calls of libm, element by element.
#pragma once

#include "ops/rule/expression.h"

namespace tpjrt::ops {

struct CosineAndSine {
  Expression cosine, sine;
};

// Of 2 pi x, for x in [0, 1), in float32.
CosineAndSine of_turns(const Expression& x);

Expression cosine(const Expression& x);
Expression sine(const Expression& x);
Expression tangent(const Expression& x);
// The angle of (x, y), in (-pi, pi].
Expression angle_of(const Expression& y, const Expression& x);
Expression arcsine(const Expression& x);
Expression arccosine(const Expression& x);
Expression arctangent(const Expression& x);

}  // namespace tpjrt::ops
