// Complex functions computed by parts: sin(a + ib) = sin a cosh b + i cos a sinh b, and so on.
#include "ops/pointwise/complex_plane.h"

#include <limits>

#include "ops/pointwise/pointwise.h"

namespace tpjrt::ops::complex_plane {
namespace {

struct Parts {
  Expression real, imag;
};

Parts parts_of(const Expression& z) { return {z.unary("real"), z.unary("imag")}; }

Expression joined(const Expression& real, const Expression& imag) {
  return real.with(real.e->complex(real.value, imag.value));
}

Expression sinh(const Expression& x) { return x.unary("chlo.sinh"); }
Expression cosh(const Expression& x) { return x.unary("chlo.cosh"); }

// Returns factor * size, and 0 where the factor is 0 and the size infinite.
Expression scaled(const Expression& factor, const Expression& size) {
  return factor * where(factor == 0, minimum(maximum(size, -1), 1), size);
}

// Returns XLA's function of z with the signs of z's parts.
Expression with_signs(const Expression& z, std::string_view op) {
  const auto [a, b] = parts_of(z);
  const auto [real, imag] = parts_of(z.unary(op));
  return joined(copysign(real, a), copysign(imag, b));
}

// Returns XLA's function of z with the sign of z's imaginary part.
Expression with_imaginary_sign(const Expression& z, std::string_view op) {
  const auto [real, imag] = parts_of(z.unary(op));
  return joined(real, copysign(imag, z.unary("imag")));
}

}  // namespace

// Behaves like C's cexp for an infinite real part, whatever the imaginary part is.
Expression exponential(const Expression& z) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto [a, b] = parts_of(z);
  const auto [real, imag] = parts_of(exp(z));
  const Expression without_angle = !b.unary("is_finite");
  const Expression vanishes = without_angle & (a == -infinity), grows = without_angle & (a == infinity);
  return joined(where(vanishes, 0, where(grows, infinity, real)), where(vanishes, 0, imag));
}

Expression square_root(const Expression& z) { return with_imaginary_sign(z, "sqrt"); }

// Computes by size and angle. A power of 0 is 0, whatever its angle would be.
Expression power(const Expression& z, const Expression& exponent) {
  const auto [a, b] = parts_of(z);
  const auto [c, d] = parts_of(exponent);
  const Expression length = log(abs(z)), turn = angle_of(b, a);
  const Expression size = exp(scaled(c, length) - scaled(turn, d)), angle = scaled(d, length) + c * turn;
  const Expression result = joined(scaled(ops::cosine(angle), size), scaled(ops::sine(angle), size));
  return where((z == 1) | (exponent == 0), 1, where(size == 0, 0, result));
}

Expression sine(const Expression& z) {
  const auto [a, b] = parts_of(z);
  return joined(scaled(ops::sine(a), cosh(b)), scaled(ops::cosine(a), sinh(b)));
}

Expression cosine(const Expression& z) {
  const auto [a, b] = parts_of(z);
  return joined(scaled(ops::cosine(a), cosh(b)), -scaled(ops::sine(a), sinh(b)));
}

Expression hyperbolic_sine(const Expression& z) {
  const auto [a, b] = parts_of(z);
  return joined(scaled(ops::cosine(b), sinh(a)), scaled(ops::sine(b), cosh(a)));
}

Expression hyperbolic_cosine(const Expression& z) {
  const auto [a, b] = parts_of(z);
  return joined(scaled(ops::cosine(b), cosh(a)), scaled(ops::sine(b), sinh(a)));
}

Expression arcsine(const Expression& z) { return with_signs(z, "chlo.asin"); }
Expression arctangent(const Expression& z) { return with_signs(z, "chlo.atan"); }
Expression hyperbolic_arcsine(const Expression& z) { return with_signs(z, "chlo.asinh"); }
Expression hyperbolic_arctangent(const Expression& z) { return with_signs(z, "chlo.atanh"); }
Expression hyperbolic_arccosine(const Expression& z) { return with_imaginary_sign(z, "chlo.acosh"); }

// The result is on the other side of the real axis than z.
Expression arccosine(const Expression& z) {
  const auto [real, imag] = parts_of(z.unary("chlo.acos"));
  return joined(real, copysign(imag, -z.unary("imag")));
}

}  // namespace tpjrt::ops::complex_plane
