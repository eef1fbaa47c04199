// Special functions: erf, gamma, zeta and Bessel families. Functions without a sound expansion have no rule and run
// on the host.
#include <ATen/native/Math.h>

#include <cmath>

#include "ops/pointwise/complex_plane.h"
#include "ops/pointwise/pointwise.h"
#include "ops/rule/expression.h"

namespace tpjrt::ops {

namespace {

// aten::erf
Values error_function(Emit& e, const Call& c) {
  Elementwise k(e, c);
  return k.give(erf(k("self")));
}

// aten::digamma: the pole at zero has the sign of -x; the others are NaN.
Expression digamma(const Expression& x) {
  return where(x == 0, where(signbit(x), kInfinity, x.number(-kInfinity)), x.unary("chlo.digamma"));
}

Values digamma_rule(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(digamma(k("self")));
}

// Returns the Hurwitz zeta function, the sum of (q + i)^-s. chlo.zeta is for positive q, so the terms before that are
// added one by one. It returns NaN for an infinite s, as torch does where q > 1. The poles are +inf in torch: s = 1,
// and q zero or a negative whole number.
Expression zeta(const Expression& s, const Expression& q) {
  constexpr double kFarthest = -1000;  // gives NaN below
  Emit& e = *q.e;
  auto lift = [&](const Value& value) { return Expression{&e, value}; };
  Expression is_pole = (s == 1) | ((q <= 0) & (q == q.unary("floor")) & ((s > 1) | (s != s)));
  Expression start = where(is_pole | (q < kFarthest), q.number(1), q);
  Values end = e.while_loop(
      {start.value, q.number(0).value}, [&](const Values& state) -> Values { return {any(lift(state[0]) < 0)}; },
      [&](const Values& state) -> Values {
        Expression at = lift(state[0]), sum = lift(state[1]), negative = at < 0;
        return {where(negative, at + 1, at).value, where(negative, sum + at.apply("power", -s), sum).value};
      });
  const Expression first = lift(end[0]);
  const Expression rest = where((s == kInfinity) & (first <= 1), first.apply("power", -s), s.apply("chlo.zeta", first));
  Expression value = lift(end[1]) + rest;
  return where(is_pole, kInfinity, where((s < 1) | (q < kFarthest), kNan, value));
}

// aten::special_zeta.
Values zeta_rule(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(zeta(k("self"), k("other")));
}

// Returns the derivative of digamma. Arguments below 0.5 are reflected: pi^2 / sin(pi x)^2 - trigamma(1 - x).
Expression trigamma(const Expression& x) {
  const Expression reflected = x < 0.5;
  Expression y = where(reflected, 1 - x, x), sine = (x * M_PI).unary("sine");
  Expression value = y.number(2).apply("chlo.zeta", y);
  return where(reflected, M_PI * M_PI / (sine * sine) - value, value);
}

// aten::polygamma: the n-th derivative of digamma, (-1)^(n+1) n! zeta(n + 1, x).
Values polygamma(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression x = k("self");
  const auto n = static_cast<double>(c.integer("n"));
  if (n == 0) return k.give(digamma(x));
  if (n == 1) return k.give(trigamma(x));
  return k.give(zeta(x.number(n + 1), x) * (std::fmod(n, 2) == 0 ? -std::tgamma(n + 1) : std::tgamma(n + 1)));
}

// aten::mvlgamma: the log of the multivariate gamma function. Its p terms are one dimension, so that their number, which
// is the order of a Wishart distribution's matrices, doesn't lengthen the program.
Values mvlgamma(Emit& e, const Call& c) {
  Pointwise k(e, c);
  const Value x = k("self").value;
  const int64_t p = c.integer("p");
  if (p < 1) throw Mistake("p is below 1");
  Type terms = x.type;
  terms.dims.insert(terms.dims.begin(), p);
  const Expression each = Expression{&e, e.broadcast_to(x, terms.dims)} - Expression{&e, e.iota(terms, 0)} / 2;
  const Expression sum{&e, e.sum(lgamma(each).value, {0})};
  return k.give(sum + static_cast<double>(p * (p - 1)) / 4 * std::log(M_PI));
}

// Returns exp(x^2) erfc(x), by its asymptotic series where erfc vanishes.
Expression erfcx(const Expression& x) {
  Expression square = x * x, inverse = 0.5 / square, series = x.number(1);
  for (int n = 10; n >= 1; --n) series = 1 - series * inverse * (2 * n - 1);
  Expression far = series / (x * std::sqrt(M_PI));
  return where(x > 10, far, exp(minimum(square, square.number(700))) * erfc(minimum(x, x.number(10))));
}

// erfcx amplifies the error of its argument's square, so f32 is computed in f64.
Values erfcx_rule(Emit& e, const Call& c) {
  Pointwise k(e, c, ElementType::kF64);
  Expression x = k("self");
  return k.give(where(x < -26.7, kInfinity, erfcx(x)));
}

// aten::special_log_ndtr: the log of the normal distribution function, through erfcx in its lower tail.
Values log_ndtr(Emit& e, const Call& c) {
  Pointwise k(e, c, ElementType::kF64);
  Expression x = k("self"), t = x * M_SQRT1_2;
  Expression tail = log(erfcx(-minimum(t, t.number(0))) * 0.5) - t * t;
  return k.give(where(x < -1, tail, log1p(erfc(t) * -0.5)));
}

// aten::special_entr: -x log(x).
Values entr(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression x = k("self");
  return k.give(where(x > 0, -(x * log(x)), where(isnan(x), x, where(x == 0, x.number(0), x.number(-kInfinity)))));
}

// aten::sinc.
Values sinc(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression x = k("self"), angle = x * M_PI;
  Expression sine = hlo::is_complex(k.element) ? complex_plane::sine(angle) : angle.unary("sine");
  return k.give(where(x == 0, 1, sine / angle));
}

// aten::logit: eps keeps the argument away from 0 and 1.
Values logit(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression x = k("self");
  if (c.has("eps")) {
    const Expression low = rounded(c, x.number(c.real("eps"))), high = rounded(c, 1 - low);
    x = where(x < low, low, where(x > high, high, x));  // the bounds may be crossed
  }
  return k.give(log(rounded(c, x / rounded(c, 1 - x))));
}

// aten::logit_backward: outside of [eps, 1 - eps] it is 0, or NaN without eps.
Values logit_backward(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression x = k("self"), slope = k("grad_output") / (x * (1 - x));
  const double eps = c.has("eps") ? c.real("eps") : 0;
  return k.give(where((x < eps) | (x > 1 - eps), c.has("eps") ? 0 : kNan, slope));
}

// Returns Clenshaw's sum of a Chebyshev series, like Cephes' chbevl: coefficients from the highest order down.
Expression chebyshev(const Expression& x, const std::tuple<const double*, size_t>& series) {
  const auto [coefficients, count] = series;
  const bool single = x.value.element() == ElementType::kF32;
  Expression b0 = x.number(0), b1 = b0, b2 = b0;
  for (size_t i = 0; i < count; ++i) {
    if (single && std::abs(coefficients[i]) < 1e-12) continue;  // below f32's precision, and all at the beginning
    b2 = b1;
    b1 = b0;
    b0 = x * b1 - b2 + coefficients[i];
  }
  return (b0 - b2) * 0.5;
}

// aten::i0, special_i0e, special_i1, special_i1e: modified Bessel functions by two series, on [0, 8] and beyond. The
// variants with e are scaled by exp(-|x|).
template <int order, bool scaled>
Values bessel_i(Emit& e, const Call& c) {
  Pointwise k(e, c);
  Expression x = k("self"), size = abs(x);
  Expression near = size / 2 - 2, far = 32 / size - 2;
  Expression value = x;
  if constexpr (order == 0) {
    value = where(size <= 8, chebyshev(near, chebyshev_coefficients_i0e_A<double>()),
                  chebyshev(far, chebyshev_coefficients_i0e_B<double>()) / size.unary("sqrt"));
  } else {
    value = where(size <= 8, chebyshev(near, chebyshev_coefficients_i1e_A<double>()) * size,
                  chebyshev(far, chebyshev_coefficients_i1e_B<double>()) / size.unary("sqrt"));
    value = where(x < 0, -value, value);
  }
  return k.give(scaled ? value : value * exp(size));
}

}  // namespace

void add_special_rules(RuleTable& rules) {
  rules.add("aten::digamma", digamma_rule, kByAten, kNotComplex);
  rules.add("aten::erf", error_function, kNotComplex);
  rules.add("aten::erfc", unary_rule<"chlo.erfc">, kNotComplex);
  rules.add("aten::erfinv", unary_rule<"chlo.erf_inv">, kByAten, kNotComplex);
  rules.add("aten::i0", bessel_i<0, false>, kNotComplex);
  rules.add("aten::lgamma", unary_rule<"chlo.lgamma">, kByAten, kNotComplex);
  rules.add("aten::logit", logit, kNotComplex);
  rules.add("aten::logit_backward", logit_backward, kFloats);
  rules.add("aten::mvlgamma", mvlgamma, kNotComplex);
  rules.add("aten::polygamma", polygamma, kByAten, kNotComplex);
  rules.add("aten::sinc", sinc);
  rules.add("aten::special_entr", entr, kNotComplex);
  rules.add("aten::special_erfcx", erfcx_rule, kNotComplex);
  rules.add("aten::special_i0e", bessel_i<0, true>, kNotComplex);
  rules.add("aten::special_i1", bessel_i<1, false>, kNotComplex);
  rules.add("aten::special_i1e", bessel_i<1, true>, kNotComplex);
  rules.add("aten::special_modified_bessel_i0", bessel_i<0, false>, kNotComplex);
  rules.add("aten::special_modified_bessel_i1", bessel_i<1, false>, kNotComplex);
  rules.add("aten::special_log_ndtr", log_ndtr, kNotComplex);
  for (auto overload : {"aten::special_zeta", "aten::special_zeta.other_scalar", "aten::special_zeta.self_scalar"}) {
    rules.add(overload, zeta_rule, kByAten, kNotComplex);
  }
}

}  // namespace tpjrt::ops
