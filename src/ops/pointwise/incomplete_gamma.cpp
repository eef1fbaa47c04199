// The incomplete gamma functions and the quantile of the normal distribution, in f64.
#include <cmath>

#include "ops/pointwise/pointwise.h"

namespace tpjrt::ops {
namespace {

// Series and fraction take some multiple of sqrt(a) iterations where x is near a. From this a on, Temme's expansion
// is exact to 1e-12.
constexpr double kLarge = 20000;
constexpr int64_t kMostIterations = 4000;

Expression sqrt(const Expression& x) { return x.unary("sqrt"); }

// Returns x^a exp(-x) / gamma(a + 1). For large a the three factors nearly cancel, so Stirling's formula is used.
Expression density(const Expression& a, const Expression& x) {
  const Expression plain = exp(a * log(x) - x - lgamma(a + 1));
  const Expression wide = where(a > 100, a, 100), excess = (x - wide) / wide, inverse = 1 / wide;
  const Expression rest = inverse * (1.0 / 12 - inverse * inverse * (1.0 / 360 - inverse * inverse / 1260));
  const Expression stirling = exp(wide * (log1p(excess) - excess) - rest) / sqrt(wide * (2 * M_PI));
  return where(a > 100, stirling, plain);
}

using Iteration = std::function<Values(const Expression& n, const std::vector<Expression>& state)>;

// Iterates until the first value of the state is false everywhere.
std::vector<Expression> iterate(const std::vector<Expression>& initial, const Iteration& iteration) {
  Emit& e = *initial[0].e;
  const Type counter{ElementType::kS32, {}};
  const auto in_each = [&](const Value& n) {
    return Expression{&e, e.broadcast_to(e.convert(n, ElementType::kF64), initial[1].value.dims())};
  };
  Values state{e.ones(counter)};
  for (const Expression& x : initial) state.push_back(x.value);
  const Values end = e.while_loop(
      state,
      [&](const Values& now) -> Values {
        const Value few = e.compare(hlo::Comparison::kLt, now[0], e.constant(kMostIterations, counter));
        return {e.binary("and", any({&e, now[1]}), few)};
      },
      [&](const Values& now) -> Values {
        std::vector<Expression> expressions;
        for (size_t i = 1; i < now.size(); ++i) expressions.push_back({&e, now[i]});
        Values next = iteration(in_each(now[0]), expressions);
        next.insert(next.begin(), e.add(now[0], e.ones(counter)));
        return next;
      });
  std::vector<Expression> results;
  for (size_t i = 1; i < end.size(); ++i) results.push_back({&e, end[i]});
  return results;
}

constexpr double kEpsilon = 1e-16;

// Returns the sum over n of x^n / ((a + 1) ... (a + n)); P is the density times it.
Expression series(const Expression& open, const Expression& a, const Expression& x) {
  const Expression one = a.number(1);
  return iterate({open, one, one}, [&](const Expression& n, const std::vector<Expression>& now) -> Values {
    const Expression term = now[1] * (x / (a + n)), sum = now[2] + term;
    return {(now[0] & (term > sum * kEpsilon)).value, term.value, sum.value};
  })[2];
}

// Returns Legendre's continued fraction of Q / (density * a / x), evaluated from the front (Lentz).
Expression fraction(const Expression& open, const Expression& a, const Expression& x) {
  const Expression b = x + 1 - a, tiny = a.number(1e-300);
  const Expression start = 1 / where(b == 0, tiny, b);
  return iterate({open, b, a.number(1e300), start, start},
                 [&](const Expression& n, const std::vector<Expression>& now) -> Values {
                   const Expression numerator = -(n * (n - a)), next_b = now[1] + 2;
                   const Expression d_sum = numerator * now[3] + next_b, c_sum = next_b + numerator / now[2];
                   const Expression d = 1 / where(d_sum == 0, tiny, d_sum), c = where(c_sum == 0, tiny, c_sum);
                   const Expression change = d * c, more = now[0] & (abs(change - 1) > kEpsilon * 2);
                   return {more.value, next_b.value, c.value, d.value, (now[4] * change).value};
                 })[4];
}

// Returns Temme's expansion of Q around x = a.
Expression expansion(const Expression& a, const Expression& x) {
  const Expression excess = (x - a) / a, half = where(excess > -1, excess - log1p(excess), kInfinity);
  const Expression size = sqrt(half * 2), eta = where(excess < 0, -size, size);
  const Expression near = where(abs(eta) < 1, eta, 0);
  const Expression first =
      near * (near * (near * (near * (near * (-139.0 / 777600) + 1.0 / 2835) + 1.0 / 864) - 2.0 / 135) + 1.0 / 12) -
      1.0 / 3;
  const Expression second = near * (near * (1.0 / 378) - 1.0 / 288) - 1.0 / 540;
  const Expression rest = exp(-(a * half)) / sqrt(a * (2 * M_PI)) * (first + second / a);
  return erfc(eta * sqrt(a / 2)) * 0.5 + rest;
}

// aten::igamma is P, the lower one, aten::igammac Q.
template <bool upper>
Values incomplete_gamma(Emit& e, const Call& c) {
  Pointwise k(e, c, ElementType::kF64);
  const Expression a = k("self"), x = k("other");
  const Expression usual = (a > 0) & (x > 0) & (a < kInfinity) & (x < kInfinity), is_large = usual & (a > kLarge);
  const Expression by_fraction = usual & !is_large & (x > 1) & (x > a), by_series = usual & !is_large & !by_fraction;
  // Replaces y by a harmless number where another branch is taken.
  const auto safe = [&](const Expression& taken, const Expression& y) { return where(taken, y, 1); };
  const Expression sa = safe(by_series, a), sx = safe(by_series, x);
  const Expression p = density(sa, sx) * series(by_series, sa, sx);
  const Expression fa = safe(by_fraction, a), fx = where(by_fraction, x, 2);
  const Expression q = density(fa, fx) * fa * fraction(by_fraction, fa, fx);
  const Expression large = expansion(where(is_large, a, kLarge), where(is_large, x, kLarge));
  const Expression lower = minimum(where(is_large, 1 - large, where(by_fraction, 1 - q, p)), 1);
  const Expression above = maximum(where(is_large, large, where(by_fraction, q, 1 - p)), 0);
  // The limits are handled in the CPU's order.
  const Expression zero = a.number(upper ? 1 : 0), one = a.number(upper ? 0 : 1), nan = a.number(kNan);
  Expression value = where(usual, upper ? above : lower, nan);
  value = where(x == kInfinity, one, value);
  value = where(a == kInfinity, where(x == kInfinity, nan, zero), value);
  value = where(x == 0, zero, value);
  value = where(a == 0, where(x > 0, one, nan), value);
  return k.give(where((a < 0) | (x < 0), nan, value));
}

// aten::special_ndtri: the x below which a normal number is with probability p. The tails take Newton's steps on the
// logarithm, which is nearly a parabola.
Values ndtri(Emit& e, const Call& c) {
  Pointwise k(e, c, ElementType::kF64);
  const Expression p = k("self");
  const Expression tail = minimum(p, 1 - p);
  const Expression central = (2 * where(tail > 0.02, p, 0.5) - 1).unary("chlo.erf_inv") * M_SQRT2;
  const Expression small = where((tail > 0) & (tail <= 0.02), tail, 0.01), wanted = log(small);
  Expression x = sqrt(wanted * -2 - log(wanted * (-4 * M_PI)));  // the distance of the quantile from 0
  for (int i = 0; i < 4; ++i) {
    // The continued fraction of Mills' ratio is exact from 2 on.
    Expression ratio = x;
    for (int n = 60; n >= 1; --n) ratio = x + static_cast<double>(n) / ratio;
    const Expression logarithm = -(x * x) * 0.5 - log(ratio) - 0.5 * std::log(2 * M_PI);
    x = x + (logarithm - wanted) / ratio;
  }
  const Expression ends = where(p == 0, p.number(-kInfinity), where(p == 1, p.number(kInfinity), kNan));
  const Expression inner = where(tail > 0.02, central, where(p < 0.5, -x, x));
  return k.give(where(tail > 0, inner, ends));
}

}  // namespace

void add_incomplete_gamma_rules(RuleTable& rules) {
  rules.add("aten::igamma", incomplete_gamma<false>, kByAten, kFloats);
  rules.add("aten::igammac", incomplete_gamma<true>, kByAten, kFloats);
  rules.add("aten::special_ndtri", ndtri, kByAten, kNotComplex);
}

}  // namespace tpjrt::ops
