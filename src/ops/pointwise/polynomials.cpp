// Orthogonal polynomials of torch.special, whose degree is a tensor, by their recurrences. Chebyshev polynomials of a
// high degree use the angle.
#include <cmath>

#include "ops/pointwise/pointwise.h"

namespace tpjrt::ops {
namespace {

using Next =
    std::function<Expression(const Expression& k, const Expression& y, const Expression& p, const Expression& q)>;

// Returns the degree as a whole number in x's dtype, or -1 if it isn't finite.
Expression degree(const Expression& n) {
  const Expression finite = n.with(n.e->unary("is_finite", n.value));
  return where(finite, trunc(n), -1);
}

// Returns (-1)^n for whole numbers.
Expression sign_of_odd(const Expression& n) { return 1 - 2 * (n - 2 * (n / 2).unary("floor")); }

// Returns p_n(y), where p_0 = 1, p_1 = `first`, and p_k+1 = next(k, y, p_k-1, p_k); 0 for a negative n. Takes as many
// iterations as the largest n that is not `skipped`.
Expression recurrence(const Expression& y, const Expression& n, const Expression& first, const Next& next,
                      const Expression& skipped) {
  Emit& e = *y.e;
  const auto lift = [&](const Value& value) { return Expression{&e, value}; };
  const Expression iterations = where(skipped, n.number(0), n), zero = n.number(0);
  const Value one = e.constant(1, Type{n.value.element(), {}});
  const auto in_each = [&](const Value& k) { return lift(e.broadcast_to(k, n.value.dims())); };
  const Values end = e.while_loop(
      {one, zero.number(1).value, first.value},
      [&](const Values& state) -> Values { return {any(in_each(state[0]) < iterations)}; },
      [&](const Values& state) -> Values {
        const Expression k = in_each(state[0]), p = lift(state[1]), q = lift(state[2]), more = k < iterations;
        const Expression r = next(k, y, p, q);
        return {e.add(state[0], e.ones(state[0].type)), where(more, q, p).value, where(more, r, q).value};
      });
  return where(n < 0, n.number(0), where(n == 0, n.number(1), lift(end[2])));
}

enum class Kind : uint8_t { kT, kU, kV, kW };

// Values at y = 1 and at y = -1 (without its sign), and the polynomial at the angle whose cosine is y.
struct Ends {
  Expression high, low;
};
Ends ends(Kind kind, const Expression& n) {
  const Expression one = n.number(1), twice = 2 * n + 1;
  switch (kind) {
    case Kind::kT: return {one, one};
    case Kind::kU: return {n + 1, n + 1};
    case Kind::kV: return {one, twice};
    case Kind::kW: break;
  }
  return {twice, one};
}

Expression at_angle(Kind kind, const Expression& n, const Expression& angle) {
  switch (kind) {
    case Kind::kT: return cosine(n * angle);
    case Kind::kU: return sine((n + 1) * angle) / sine(angle);
    case Kind::kV: return cosine((n + 0.5) * angle) / cosine(angle / 2);
    case Kind::kW: break;
  }
  return sine((n + 0.5) * angle) / sine(angle / 2);
}

// The CPU's kernels use the angle above these degrees.
template <Kind kind, bool shifted, int last_by_recurrence>
Values chebyshev_polynomial(Emit& e, const Call& c) {
  Pointwise k(e, c);
  const Expression x = k("x"), n = degree(k("n")), y = shifted ? x + x - 1 : x;
  const auto [high, low] = ends(kind, n);
  const Expression is_end = abs(y) == 1, by_angle = (n > last_by_recurrence) & (abs(y) < 1);
  Expression first = kind == Kind::kT ? y : y + y;
  if (kind == Kind::kV) first = first - 1;
  if (kind == Kind::kW) first = first + 1;
  const Next next = [](const Expression& /*k*/, const Expression& y, const Expression& p, const Expression& q) {
    return (y + y) * q - p;
  };
  Expression value = recurrence(y, n, first, next, is_end | by_angle);
  value = where(by_angle, at_angle(kind, n, arccosine(where(abs(y) < 1, y, 0))), value);
  value = where(is_end & (n >= 0), where(y > 0, high, low * sign_of_odd(n)), value);
  return k.give(value);
}

// Hermite polynomials: the CPU's kernels give NaN beyond this degree.
double last_hermite(const Pointwise& k) { return k.element == ElementType::kF64 ? 512 : 128; }

template <bool physicists>
Values hermite(Emit& e, const Call& c) {
  Pointwise k(e, c);
  const Expression x = k("x"), n = degree(k("n")), y = physicists ? x + x : x;
  const Next next = [](const Expression& k, const Expression& y, const Expression& p, const Expression& q) {
    return y * q - (physicists ? 2 * k : k) * p;
  };
  const Expression beyond = n > last_hermite(k);
  return k.give(where(beyond, std::nan(""), recurrence(y, n, y, next, beyond)));
}

// aten::special_laguerre_polynomial_l
Values laguerre(Emit& e, const Call& c) {
  Pointwise k(e, c);
  const Expression x = k("x"), n = degree(k("n")), is_end = x == 0;
  const Next next = [](const Expression& k, const Expression& y, const Expression& p, const Expression& q) {
    return ((k + k + (1 - y)) * q - k * p) / (k + 1);
  };
  return k.give(where(is_end & (n >= 0), 1, recurrence(x, n, 1 - x, next, is_end)));
}

// aten::special_legendre_polynomial_p
Values legendre(Emit& e, const Call& c) {
  Pointwise k(e, c);
  const Expression x = k("x"), n = degree(k("n")), is_end = abs(x) == 1;
  const Next next = [](const Expression& k, const Expression& y, const Expression& p, const Expression& q) {
    return ((k + k + 1) * y * q - k * p) / (k + 1);
  };
  const Expression at_end = where(x > 0, n.number(1), sign_of_odd(n));
  return k.give(where(is_end & (n >= 0), at_end, recurrence(x, n, x, next, is_end)));
}

}  // namespace

void add_polynomial_rules(RuleTable& rules) {
  const auto add = [&](const std::string& name, Rule rule) {
    for (const char* overload : {"", ".x_scalar", ".n_scalar"}) {
      rules.add("aten::special_" + name + overload, rule, kByAten, kNotComplex);
    }
  };
  add("chebyshev_polynomial_t", chebyshev_polynomial<Kind::kT, false, 6>);
  add("chebyshev_polynomial_u", chebyshev_polynomial<Kind::kU, false, 8>);
  add("chebyshev_polynomial_v", chebyshev_polynomial<Kind::kV, false, 8>);
  add("chebyshev_polynomial_w", chebyshev_polynomial<Kind::kW, false, 8>);
  add("shifted_chebyshev_polynomial_t", chebyshev_polynomial<Kind::kT, true, 6>);
  add("shifted_chebyshev_polynomial_u", chebyshev_polynomial<Kind::kU, true, 6>);
  add("shifted_chebyshev_polynomial_v", chebyshev_polynomial<Kind::kV, true, 6>);
  add("shifted_chebyshev_polynomial_w", chebyshev_polynomial<Kind::kW, true, 4>);
  add("hermite_polynomial_h", hermite<true>);
  add("hermite_polynomial_he", hermite<false>);
  add("laguerre_polynomial_l", laguerre);
  add("legendre_polynomial_p", legendre);
}

}  // namespace tpjrt::ops
