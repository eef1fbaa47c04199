// Gamma, Poisson, binomial and Dirichlet draws: proposals are drawn again for all elements until each has been
// accepted once. Programs on the CPU call PyTorch's kernels instead.
#include <cmath>
#include <limits>

#include "ops/creation/draw.h"
#include "ops/rule/expression.h"
#include "ops/rule/limits.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The draws of one iteration, from a key of its own.
struct Attempt {
  Emit& e;
  const Call& call;
  const Type& type;

  // Return numbers in [0, 1), and in (0, 1].
  Expression uniform() const { return {&e, random_uniform(e, call, type)}; }
  Expression above_zero() const { return 1 - uniform(); }
  Expression normal() const { return {&e, random_normal(e, call, type)}; }
};

struct Proposal {
  Expression accepted, value;
};

Value any_of(Emit& e, const Value& predicates) {
  Dims all;
  for (int64_t d = 0; d < predicates.rank(); ++d) all.push_back(d);
  return e.reduce("or", predicates, e.constant(0, Type{ElementType::kPred, {}}), all);
}

// Returns the first accepted proposal for each element that is `open`, and 0 for the others.
Expression until_accepted(const Call& c, const Expression& open, const Type& type,
                          const std::function<Proposal(const Attempt& attempt)>& propose) {
  Emit& e = *open.e;
  if (type.elements() == 0) return {&e, e.zeros(type)};
  Value& key = e.drawn_from(c.rng_key);
  const Values end = e.while_loop(
      {key, open.value, e.zeros(type)}, [&](const Values& state) -> Values { return {any_of(e, state[1])}; },
      [&](const Values& state) -> Values {
        Call inner;
        inner.rng_key = state[0];
        const Proposal proposal = propose({e, inner, type});
        const Value taken = e.binary("and", state[1], proposal.accepted.value);
        return {e.drawn_from(inner.rng_key), e.binary("and", state[1], e.unary("not", proposal.accepted.value)),
                e.select(taken, proposal.value.value, state[2])};
      });
  e.drawn_from(c.rng_key) = end[0];
  return {&e, end[2]};
}

Expression lgamma(const Expression& x) { return x.unary("chlo.lgamma"); }
Expression sqrt(const Expression& x) { return x.unary("sqrt"); }
Expression floor(const Expression& x) { return x.unary("floor"); }
Expression is_finite(const Expression& x) { return x.unary("is_finite"); }

// Returns standard gamma numbers by Marsaglia's and Tsang's proposals, the cube of a normal number. An alpha below 1
// takes a number of alpha + 1 and scales it. Returns NaN where alpha is negative or NaN.
Expression gamma(const Call& c, const Expression& alpha) {
  Emit& e = *alpha.e;
  const Type type = alpha.value.type;
  const Expression possible = (alpha > 0) & is_finite(alpha), small = alpha < 1;
  const Expression d = where(possible, where(small, alpha + 1, alpha), 1) - 1.0 / 3, step = 1 / sqrt(d * 9);
  const Expression cube = until_accepted(c, possible, type, [&](const Attempt& attempt) -> Proposal {
    const Expression x = attempt.normal(), root = 1 + step * x, u = attempt.above_zero();
    const Expression v = root * root * root, positive = root > 0, safe = where(positive, v, 1);
    const Expression bound = x * x * 0.5 + d * (1 - safe + log(safe));
    return {positive & (log(u) < bound), v};
  });
  const Expression u{&e, random_uniform(e, c, type)};
  const Expression scale = where(small, (1 - u).apply("power", 1 / where(possible, alpha, 1)), 1);
  return where(possible, scale * d * cube, where(alpha == 0, alpha, where(alpha > 0, alpha, kNan)));
}

// aten::_standard_gamma: at least the smallest normal number.
Values standard_gamma(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  const bool wide = result.element == ElementType::kF64;
  const Expression alpha{&e, e.to(c.tensor("self"), wide ? ElementType::kF64 : ElementType::kF32)};
  return {e.to(maximum(gamma(c, alpha), smallest_normal(result.element)).value, result.element)};
}

// aten::_sample_dirichlet: gamma numbers divided by their sum along the last dimension, within (0, 1).
Values sample_dirichlet(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  if (result.elements() == 0) return {e.zeros(result)};
  const Expression alpha{&e, e.to(c.tensor("self"), ElementType::kF64)};
  const Value drawn = maximum(gamma(c, alpha), std::numeric_limits<double>::min()).value;
  const int64_t last = drawn.rank() - 1;
  const Value total = e.broadcast_reduced(e.sum(drawn, {last}), {last}, drawn.dims());
  const double below_one = 1 - std::ldexp(1.0, -mantissa_bits(result.element));
  const Expression part{&e, e.div(drawn, total)};
  return {e.to(minimum(maximum(part, smallest_normal(result.element)), below_one).value, result.element)};
}

// Returns how many terms of a distribution a uniform number passes; the terms are p_0, and p_k+1 = next(k, p_k).
Expression terms_passed(const Call& c, const Expression& open, const Expression& first, const Expression& last,
                        const std::function<Expression(const Expression& k, const Expression& p)>& next) {
  Emit& e = *first.e;
  if (first.value.type.elements() == 0) return first;
  const Expression zero = first.number(0), u{&e, random_uniform(e, c, first.value.type)};
  const auto lift = [&](const Value& x) { return Expression{&e, x}; };
  const auto passes = [&](const Values& state) {
    return open & (lift(state[0]) >= lift(state[1])) & (lift(state[2]) < last);
  };
  const Values end = e.while_loop(
      {u.value, first.value, zero.value},
      [&](const Values& state) -> Values { return {any_of(e, passes(state).value)}; },
      [&](const Values& state) -> Values {
        const Expression left = lift(state[0]), p = lift(state[1]), k = lift(state[2]), more = passes(state);
        return {where(more, left - p, left).value, where(more, next(k, p), p).value, where(more, k + 1, k).value};
      });
  return lift(end[2]);
}

constexpr double kFew = 10;         // below this mean, terms are counted
constexpr double kMostTerms = 400;  // rounding can leave a uniform number above the sum of all terms

// Hormann's transformed rejection, for a distribution with a mode: a uniform number is transformed to cover it.
struct Hat {
  Expression a, b, center;

  struct Try {
    Expression k, distance, v;
  };
  Try propose(const Attempt& attempt) const {
    const Expression u = attempt.uniform() - 0.5, v = attempt.above_zero(), distance = maximum(0.5 - abs(u), 1e-300);
    return {floor((2 * a / distance + b) * u + center), distance, v};
  }
  // Returns the logarithm of the hat over the proposal.
  Expression height(const Try& t, const Expression& scale) const {
    return log(t.v * scale / (a / (t.distance * t.distance) + b));
  }
};

// aten::poisson
Values poisson(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  const Expression rate{&e, e.to(c.tensor("self"), ElementType::kF64)};
  e.require_all((rate >= 0).value, "invalid Poisson rate, expected rate to be non-negative");
  const Expression few = (rate >= 0) & (rate < kFew), many = (rate >= kFew) & is_finite(rate);
  const Expression small = where(few, rate, 1), large = where(many, rate, kFew);
  const Expression counted =
      terms_passed(c, few, exp(-small), small.number(kMostTerms),
                   [&](const Expression& k, const Expression& p) { return p * small / (k + 1); });
  const Expression b = 0.931 + 2.53 * sqrt(large), a = 0.02483 * b - 0.059;
  const Hat hat{a, b, large + 0.43};
  const Expression scale = 1.1239 + 1.1328 / (b - 3.4), box = 0.9277 - 3.6224 / (b - 2), logarithm = log(large);
  const Expression drawn = until_accepted(c, many, rate.value.type, [&](const Attempt& attempt) -> Proposal {
    const Hat::Try t = hat.propose(attempt);
    const Expression k = maximum(t.k, 0);
    const Expression inside = (t.distance >= 0.07) & (t.v <= box) & (t.k >= 0);
    const Expression possible = (t.k >= 0) & ((t.distance >= 0.013) | (t.v <= t.distance));
    const Expression below = hat.height(t, scale) <= k * logarithm - large - lgamma(k + 1);
    return {inside | (possible & below), k};
  });
  return {e.to(where(few, counted, where(many, drawn, rate)).value, result.element)};
}

// Returns log(k!) less Stirling's part, (k + 1/2) log(k + 1) - (k + 1) + log(2 pi) / 2.
Expression stirling_rest(const Expression& k) {
  const Expression next = where(k < 10, k.number(10), k) + 1, square = next * next;
  const Expression far = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / next;
  const Expression low = minimum(k, 10);
  const Expression near = lgamma(low + 1) - (low + 0.5) * log(low + 1) + (low + 1) - 0.5 * std::log(2 * M_PI);
  return where(k < 10, near, far);
}

// aten::binomial: draws the rarer outcome, which is counted where few are expected.
Values binomial(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  const auto number = [&](std::string_view name) {
    return Expression{&e, e.broadcast_to(e.to(c.tensor(name), ElementType::kF64), result.dims)};
  };
  const Expression count = number("count"), chance = number("prob");
  const Expression usual = (count > 0) & (chance > 0) & (chance < 1) & is_finite(count);
  const Expression swapped = chance > 0.5, rarer = where(usual, where(swapped, 1 - chance, chance), 0.5);
  const Expression n = where(usual, floor(count), 1), mean = n * rarer;
  const Expression few = usual & (mean < kFew), many = usual & (mean >= kFew);

  const Expression small = where(few, n, 1), p = where(few, rarer, 0.5), odds = p / (1 - p);
  const Expression counted =
      terms_passed(c, few, exp(small * log1p(-p)), minimum(small, kMostTerms),
                   [&](const Expression& k, const Expression& term) { return term * odds * ((small - k) / (k + 1)); });

  const Expression large = where(many, n, 100), q = where(many, rarer, 0.5), spread = sqrt(large * q * (1 - q));
  const Expression b = 1.15 + 2.53 * spread, a = 0.0248 * b + 0.01 * q - 0.0873;
  const Hat hat{a, b, large * q + 0.5};
  const Expression scale = (2.83 + 5.1 / b) * spread, box = 0.92 - 4.2 / b, ratio = q / (1 - q);
  const Expression mode = floor((large + 1) * q);
  const Expression drawn = until_accepted(c, many, count.value.type, [&](const Attempt& attempt) -> Proposal {
    const Hat::Try t = hat.propose(attempt);
    const Expression possible = (t.k >= 0) & (t.k <= large), k = where(possible, t.k, mode), rest = large - k;
    const Expression bound = (mode + 0.5) * log((mode + 1) / (ratio * (large - mode + 1))) +
                             (large + 1) * log((large - mode + 1) / (rest + 1)) +
                             (k + 0.5) * log(ratio * (rest + 1) / (k + 1)) + stirling_rest(mode) +
                             stirling_rest(large - mode) - stirling_rest(k) - stirling_rest(rest);
    const Expression inside = (t.distance >= 0.07) & (t.v <= box);
    return {possible & (inside | (hat.height(t, scale) <= bound)), k};
  });
  const Expression successes = where(few, counted, drawn), value = where(swapped, count - successes, successes);
  const Expression none = (count <= 0) | (chance <= 0), all = chance >= 1;
  return {e.to(where(usual, value, where(none, count.number(0), where(all, count, kNan))).value, result.element)};
}

}  // namespace

void add_rejection_rules(RuleTable& rules) {
  rules.add("aten::_standard_gamma", standard_gamma, kDrawnByAten, kFloats);
  rules.add("aten::_sample_dirichlet", sample_dirichlet, kDrawnByAten, kFloats);
  rules.add("aten::poisson", poisson, kDrawnByAten, kFloats);
  rules.add("aten::binomial", binomial, kDrawnByAten, kFloats);
}

}  // namespace tpjrt::ops
