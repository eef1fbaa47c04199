// Random numbers: torch's distributions drawn from the call's key, and dropout. The streams are not those of the CPU.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/creation/draw.h"
#include "ops/movement/movement.h"
#include "ops/reduction/reduction.h"
#include "ops/rule/expression.h"
#include "ops/rule/limits.h"

namespace tpjrt::ops {

namespace {

// Returns numbers in [0, 1) in the dtype that computes the result: f64 for f64 and integers of 64 bits, else f32.
Value unit(Emit& e, const Call& c, const Type& result) {
  const bool wide = result.element == ElementType::kF64 || result.element == ElementType::kS64;
  return random_uniform(e, c, {wide ? ElementType::kF64 : ElementType::kF32, result.dims});
}

Value scaled(Emit& e, const Value& x, double factor, double shift) {
  Value y = factor == 1 ? x : e.mul(x, e.splat(factor, x.type));
  return shift == 0 ? y : e.add(y, e.splat(shift, y.type));
}

// Returns a scalar of the call, which may vary, in every element.
Value number(Emit& e, const Call& c, std::string_view name, const Type& type) {
  return e.broadcast_to(c.scalar(e, name, type.element), type.dims);
}

// Returns x, computed from such scalars, in every element.
Value in_each(const Expression& x, const Type& type) {
  return x.e->broadcast_to(x.e->convert(x.value, type.element), type.dims);
}

// Returns x scaled and shifted by scalars of the call.
Value scaled(Emit& e, const Call& c, const Value& x, std::string_view factor, std::string_view shift) {
  if (!c.argument(factor).varies && !c.argument(shift).varies) return scaled(e, x, c.seen(factor), c.seen(shift));
  return e.add(e.mul(x, number(e, c, factor, x.type)), number(e, c, shift, x.type));
}

bool any_varies(const Call& c, std::initializer_list<std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view n) { return c.has(n) && c.argument(n).varies; });
}

// Returns true with the given probability, to one part in 2^32.
Value chance(Emit& e, const Call& c, double probability, const Dims& dims) {
  const Type type{ElementType::kU32, dims};
  const double threshold = std::ldexp(probability, 32);
  if (threshold >= 0x1p32) return e.ones({ElementType::kPred, dims});
  return e.compare(hlo::Comparison::kLt, random_bits(e, c, type),
                   e.constant_u64(static_cast<uint64_t>(std::max(threshold, 0.0)), type));
}

// Returns true with a probability that is known at run time only.
Value chance(Emit& e, const Call& c, const Expression& probability, const Dims& dims) {
  const Type bits{ElementType::kU32, dims};
  const Value below = e.convert(minimum(probability * 0x1p32, 0x1p32 - 1).value, ElementType::kU32);
  const Value lower = e.compare(hlo::Comparison::kLt, random_bits(e, c, bits), e.broadcast_to(below, dims));
  return e.binary("or", lower, e.broadcast_to((probability >= 1).value, dims));
}

// aten::uniform: in [from, to).
Values uniform(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  if (any_varies(c, {"from", "to"})) {
    const Expression from{&e, c.scalar(e, "from", ElementType::kF64)}, to{&e, c.scalar(e, "to", ElementType::kF64)};
    return {e.upcast(random_uniform(e, c, result), [&](const Value& x) {
      return e.add(e.mul(x, in_each(to - from, x.type)), in_each(from, x.type));
    })};
  }
  const double from = c.seen("from"), to = c.seen("to");
  if (!(from <= to)) throw Mistake("from is above to");
  const double most = largest_finite(result.element);
  if (from < -most || to > most || to - from > most) throw Mistake("the range is outside of the dtype's");
  Value u = random_uniform(e, c, result);  // with the dtype's own resolution, so that rounding never reaches 1
  if (from == 0 && to == 1) return {u};
  return {e.upcast(u, [&](const Value& x) { return scaled(e, x, to - from, from); })};
}

// aten::normal_functional
Values normal(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  if (hlo::is_complex(result.element)) {  // the variance is that of both parts together
    const Type part{hlo::real_element(result.element), result.dims};
    const double std = c.real("std") / std::numbers::sqrt2;
    Value real = scaled(e, random_normal(e, c, part), std, c.real("mean"));
    return {e.complex(real, scaled(e, random_normal(e, c, part), std, 0))};
  }
  const Type type{Emit::compute_element(result.element), result.dims};
  return {e.convert(scaled(e, c, random_normal(e, c, type), "std", "mean"), result.element)};
}

// aten::normal.Tensor_float, aten::normal.float_Tensor, aten::normal.Tensor_Tensor: mean and std broadcast.
Values normal_tensors(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  if (c.argument("std").kind == Argument::Kind::kTensor && hlo::is_complex(c.tensor("std").element())) {
    throw Mistake("a complex deviation");
  }
  if (hlo::is_complex(result.element)) throw Unsupported("random complex numbers");
  const Type type{Emit::compute_element(result.element), result.dims};
  auto operand = [&](std::string_view name) {
    if (c.argument(name).kind == Argument::Kind::kTensor) {
      return e.broadcast_to(e.to(c.tensor(name), type.element), type.dims);
    }
    return number(e, c, name, type);
  };
  const Value deviation = operand("std");
  e.require_all((Expression{&e, deviation} >= 0).value, "normal expects all elements of std >= 0.0");
  return {e.convert(e.add(operand("mean"), e.mul(deviation, random_normal(e, c, type))), result.element)};
}

// aten::bernoulli, aten::bernoulli.Tensor: a probability for each element.
Values bernoulli_each(Emit& e, const Call& c, std::string_view probability) {
  const Type result = e.type_of(c.result());
  Value p = c.tensor(probability);
  const bool wide = p.element() == ElementType::kF64;
  p = e.broadcast_to(e.to(p, wide ? ElementType::kF64 : ElementType::kF32), result.dims);
  const Expression chance{&e, p};
  e.require_all(((chance >= 0) & (chance <= 1)).value, "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
  return {e.to(e.compare(hlo::Comparison::kLt, random_uniform(e, c, p.type), p), result.element)};
}

Values bernoulli(Emit& e, const Call& c) { return bernoulli_each(e, c, "self"); }
Values bernoulli_tensor(Emit& e, const Call& c) { return bernoulli_each(e, c, "p"); }

// aten::bernoulli.p
Values bernoulli_p(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  if (any_varies(c, {"p"})) {
    return {e.to(chance(e, c, Expression{&e, c.scalar(e, "p", ElementType::kF64)}, result.dims), result.element)};
  }
  const double p = c.seen("p");
  if (!(p >= 0 && p <= 1)) throw Mistake("p is outside of [0, 1]");
  return {e.to(chance(e, c, p, result.dims), result.element)};
}

// Returns from + bits % range, with 32 bits where torch takes 32: some numbers then come up to 6% more often. A range
// of 0 means 2^64.
Value random_integers(Emit& e, const Call& c, int64_t from, uint64_t range, const Type& result) {
  const bool wide = range == 0 || range >= uint64_t{1} << 28;
  const Type bits{wide ? ElementType::kU64 : ElementType::kU32, result.dims};
  Value drawn = random_bits(e, c, bits);
  if (range != 0) drawn = e.binary("remainder", drawn, e.constant_u64(range, bits));
  Value integers = e.convert(drawn, ElementType::kS64);
  if (from != 0) integers = e.add(integers, e.constant(from, integers.type));
  return e.to(integers, result.element);
}

// Returns the number of integers from 0 on that the dtype holds exactly.
uint64_t exact_integers(ElementType element) {
  switch (element) {
    case ElementType::kPred: return 2;
    case ElementType::kBF16: return (uint64_t{1} << 8) + 1;
    case ElementType::kF16: return (uint64_t{1} << 11) + 1;
    case ElementType::kF32: return (uint64_t{1} << 24) + 1;
    case ElementType::kF64: return (uint64_t{1} << 53) + 1;
    case ElementType::kU64: return 0;
    default: break;
  }
  const int64_t bits = 8 * hlo::byte_width(element);
  return uint64_t{1} << (hlo::is_unsigned_integer(element) ? bits : bits - 1);
}

// aten::random: every nonnegative integer that the dtype holds exactly.
Values random(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  return {random_integers(e, c, 0, exact_integers(result.element), result)};
}

// Throws for bounds that random_ refuses. Floats have no bounds except half, whose overflow would be infinite.
void require_in_range(int64_t least, int64_t largest, ElementType element) {
  int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  if (element == ElementType::kF16) {
    high = static_cast<int64_t>(largest_finite(element));
    low = -high;
  } else if (element == ElementType::kPred || (hlo::is_integer(element) && element != ElementType::kU64)) {
    high = static_cast<int64_t>(exact_integers(element) - 1);
    low = element == ElementType::kPred || hlo::is_unsigned_integer(element) ? 0 : -high - 1;
  }
  if (least < low || largest > high) throw Mistake("bounds are outside of the dtype's range");
}

// Returns a bound that does not vary.
int64_t seen_integer(const Call& c, std::string_view name) {
  const bool is_number = c.argument(name).kind == Argument::Kind::kScalar;  // a small bound, passed as a scalar
  return is_number ? static_cast<int64_t>(c.seen(name)) : c.integer(name);
}

// Draws between bounds that are known at run time only, which are small.
Value random_between(Emit& e, const Call& c, const Type& result) {
  const Type bits{ElementType::kU32, result.dims};
  Value range = c.scalar(e, "to", ElementType::kS64);
  if (c.has("from")) range = e.sub(range, c.scalar(e, "from", ElementType::kS64));
  range = e.broadcast_to(e.convert(range, bits.element), bits.dims);
  Value integers = e.convert(e.binary("remainder", random_bits(e, c, bits), range), ElementType::kS64);
  if (c.has("from")) integers = e.add(integers, number(e, c, "from", integers.type));
  return e.to(integers, result.element);
}

// aten::random.to: in [0, to).
Values random_to(Emit& e, const Call& c) {
  if (any_varies(c, {"to"})) return {random_between(e, c, e.type_of(c.result()))};
  const int64_t to = seen_integer(c, "to");
  if (to <= 0) throw Mistake("to is not above 0");
  require_in_range(0, to - 1, e.type_of(c.result()).element);
  return {random_integers(e, c, 0, static_cast<uint64_t>(to), e.type_of(c.result()))};
}

// aten::random.from: in [from, to), or up to the dtype's largest integer.
Values random_from(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  if (!c.has("to")) {
    const int64_t from = c.integer("from");
    require_in_range(from, from, result.element);
    return {random_integers(e, c, from, exact_integers(result.element) - static_cast<uint64_t>(from), result)};
  }
  if (any_varies(c, {"from", "to"})) return {random_between(e, c, result)};
  const int64_t from = seen_integer(c, "from"), to = seen_integer(c, "to");
  if (to <= from) throw Mistake("to is not above from");
  require_in_range(from, to - 1, result.element);
  return {random_integers(e, c, from, static_cast<uint64_t>(to) - static_cast<uint64_t>(from), result)};
}

// aten::randperm, aten::randperm.generator: positions ordered by random numbers. The positions are the low bits of
// these numbers, so one sort returns them. At least 32 bits stay random.
Values randperm(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  const int64_t n = result.elements();
  if (n == 0) return {e.zeros(result)};
  if (n > UINT32_MAX) throw Unsupported("a permutation of more than 2^32 elements");
  const uint64_t exact = exact_integers(result.element);
  if (exact > 0 && static_cast<uint64_t>(n) > exact &&
      result.element != ElementType::kBF16) {  // bfloat16 rounds its numbers
    throw Mistake("n is more than the dtype holds");
  }
  const Type keys{ElementType::kU64, result.dims};
  Value low = e.constant_u64(std::bit_ceil(static_cast<uint64_t>(n)) - 1, keys);
  Value high = e.binary("and", random_bits(e, c, keys), e.unary("not", low));
  auto before = [&](const Values& pair) -> Values { return {e.compare(hlo::Comparison::kLt, pair[0], pair[1])}; };
  Value sorted = e.sort({e.binary("or", high, e.iota(keys, 0))}, 0, false, before)[0];
  return {e.to(e.convert(e.binary("and", sorted, low), ElementType::kS64), result.element)};
}

// Returns standard exponential numbers above zero.
Value exponential_unit(Emit& e, const Call& c, const Type& type) {
  Value u = unit(e, c, type);
  double least = u.element() == ElementType::kF64 ? 0x1p-54 : 0x1p-25;
  if (type.element == ElementType::kF16) least = 0x1p-24;  // its smallest number
  Value log = e.neg(log1p({&e, e.neg(u)}).value);
  return e.maximum(log, e.splat(least, log.type));
}

// aten::exponential
Values exponential(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  const Value x = exponential_unit(e, c, result);
  if (any_varies(c, {"lambd"})) {
    const Expression scale = 1 / Expression{&e, c.scalar(e, "lambd", ElementType::kF64)};
    return {e.to(e.mul(x, in_each(scale, x.type)), result.element)};
  }
  return {e.to(scaled(e, x, 1 / c.seen("lambd"), 0), result.element)};
}

// aten::geometric: the number of trials up to the first success, from 1.
Values geometric(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  Value trials = scaled(e, exponential_unit(e, c, result), -1 / std::log1p(-c.real("p")), 0);
  return {e.to(e.maximum(e.unary("ceil", trials), e.ones(trials.type)), result.element)};
}

// aten::cauchy
Values cauchy(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  Value angle = scaled(e, unit(e, c, result), M_PI, -M_PI / 2);
  Value tangent = e.div(e.unary("sine", angle), e.unary("cosine", angle));
  return {e.to(scaled(e, tangent, c.real("sigma"), c.real("median")), result.element)};
}

// aten::log_normal
Values log_normal(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  const Type type{Emit::compute_element(result.element), result.dims};
  Value exponent = scaled(e, random_normal(e, c, type), c.real("std"), c.real("mean"));
  return {e.convert(e.exp(exponent), result.element)};
}

// Returns the part of x that the mask keeps, scaled. It is a product, like torch's, so dropped infinities and NaN give
// NaN.
template <class F>
Value kept(Emit& e, const Value& x, const Value& mask, F&& scale) {
  return e.upcast(x, [&](const Value& y) { return scale(e.mul(y, e.convert(mask, y.element()))); });
}

// Dropout with a probability that is known at run time only.
Values varying_dropout(Emit& e, const Call& c) {
  const Value x = c.tensor("input");
  const Expression p{&e, c.scalar(e, "p", ElementType::kF64)};
  const Value mask = chance(e, c, 1 - p, x.dims());
  const Expression scale = where(p < 1, 1 / (1 - p), 0);
  return {kept(e, x, mask, [&](const Value& y) { return e.mul(y, in_each(scale, y.type)); }), mask};
}

// aten::native_dropout: train=None counts as true. The mask is true where an element was kept.
Values native_dropout(Emit& e, const Call& c) {
  Value x = c.tensor("input");
  if (c.has("train") && !c.boolean("train")) return {x, e.ones({ElementType::kPred, x.dims()})};
  if (c.argument("p").varies) return varying_dropout(e, c);
  const double p = c.seen("p");
  if (!(p >= 0 && p <= 1)) throw Mistake("p is outside of [0, 1]");
  Value mask = chance(e, c, 1 - p, x.dims());
  return {kept(e, x, mask, [&](const Value& y) { return scaled(e, y, p < 1 ? 1 / (1 - p) : 0, 0); }), mask};
}

// aten::native_dropout_backward
Values native_dropout_backward(Emit& e, const Call& c) {
  Value grad = e.to(c.tensor("grad_output"), e.element(c.result()));  // integers have gradients in floats
  const Value mask = e.to(c.tensor("mask"), ElementType::kPred);
  return {kept(e, grad, mask, [&](const Value& y) { return e.mul(y, number(e, c, "scale", y.type)); })};
}

// Draws with replacement: counts the cumulative sums that are not above a uniform part of the total. A sum that is
// the whole total is never counted, so categories without weight are never drawn.
Value draw_with_replacement(Emit& e, const Call& c, const Value& weights, int64_t count) {
  const int64_t rows = weights.dim(0), n = weights.dim(1);
  Value sums = e.cumulative(weights, 1, "add", 0);
  Value total = e.slice(sums, {0, n - 1}, {rows, n}, {1, 1});
  const Type drawn{weights.element(), {rows, count}};
  Value target = e.mul(random_uniform(e, c, drawn), e.broadcast_to(total, drawn.dims));
  Value passed = e.convert(search(e, sums, target, /*right=*/true), ElementType::kS64);
  Value partial = e.compare(hlo::Comparison::kLt, sums, e.broadcast_to(total, sums.dims()));
  Value most = e.sum(e.convert(partial, ElementType::kS64), {1});
  return e.minimum(passed, e.broadcast_in_dim(most, passed.dims(), {0}));
}

// aten::multinomial. Without replacement, the draw is the weights divided by standard exponentials, the largest
// first.
Values multinomial(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const Type result = e.type_of(c.result());
  if (!hlo::is_float(x.element())) throw Mistake("probabilities are floats");
  if (c.integer("num_samples") <= 0) throw Mistake("no samples are asked for");
  if (x.rank() == 0 || x.dims().back() == 0) throw Mistake("there are no categories");
  if (x.dims().back() >= 1 << 24) throw Mistake("too many categories");
  if (result.elements() == 0) return {e.zeros(result)};
  const int64_t n = x.dims().back(), rows = x.type.elements() / n, count = c.integer("num_samples");
  Value weights = e.reshape(e.to(x, Emit::compute_element(x.element())), {rows, n});
  const Value finite = e.unary("is_finite", weights), possible = (Expression{&e, weights} >= 0).value;
  if (c.boolean("replacement") && count > 1) {  // another CPU kernel, with other words
    const std::string wrong = "invalid multinomial distribution (encountering probability entry ";
    e.require_all(finite, wrong + "= infinity or NaN)");
    e.require_all(possible, wrong + "< 0)");
  } else {
    e.require_all(e.binary("and", finite, possible), "probability tensor contains either `inf`, `nan` or element < 0");
  }
  e.require_all((Expression{&e, e.sum(weights, {1})} > 0).value,
                "invalid multinomial distribution (sum of probabilities <= 0)");
  if (c.boolean("replacement")) return {e.reshape(draw_with_replacement(e, c, weights, count), result.dims)};
  Value race = e.div(weights, e.convert(exponential_unit(e, c, weights.type), weights.element()));
  Value order = sort_along(e, race, 1, true).indices;
  return {e.reshape(e.slice(order, {0, 0}, {rows, count}, {1, 1}), result.dims)};
}

// aten::rrelu_with_noise_functional: training draws a slope for each negative element and returns it as noise;
// evaluation uses the mean slope.
Values rrelu_with_noise(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const double lower = c.constant_scalar("lower").toDouble(), upper = c.constant_scalar("upper").toDouble();
  const bool training = c.boolean("training");
  Value y = e.to(x, Emit::compute_element(x.element()));
  Value positive = e.compare(hlo::Comparison::kGt, y, e.zeros(y.type));
  Value slope =
      training ? scaled(e, random_uniform(e, c, y.type), upper - lower, lower) : e.splat((lower + upper) / 2, y.type);
  Value out = e.to(e.select(positive, y, e.mul(y, slope)), x.element());
  if (!training) return {out, c.tensor("noise")};
  return {out, e.to(e.select(positive, e.ones(y.type), slope), e.element(c.result(1)))};
}

}  // namespace

void add_random_rules(RuleTable& rules) {
  rules.add("aten::uniform", uniform);
  rules.add("aten::normal_functional", normal, kInexact);
  rules.add("aten::normal.Tensor_float", normal_tensors, kInexact);
  rules.add("aten::normal.float_Tensor", normal_tensors, kInexact);
  rules.add("aten::normal.Tensor_Tensor", normal_tensors, kInexact);
  rules.add("aten::bernoulli", bernoulli, kFloats);
  rules.add("aten::bernoulli.Tensor", bernoulli_tensor, kNotComplex);
  rules.add("aten::bernoulli.p", bernoulli_p, kNotComplex);
  rules.add("aten::random", random, kNotComplex);
  rules.add("aten::random.to", random_to, kNotComplex);
  rules.add("aten::random.from", random_from, kNotComplex);
  rules.add("aten::randperm", randperm, kDrawnByAten);
  rules.add("aten::randperm.generator", randperm, kDrawnByAten);
  rules.add("aten::exponential", exponential);
  rules.add("aten::geometric", geometric);
  rules.add("aten::cauchy", cauchy);
  rules.add("aten::log_normal", log_normal);
  rules.add_composite("aten::native_dropout", native_dropout);
  rules.add_composite("aten::native_dropout_backward", native_dropout_backward);
  rules.add_composite("aten::multinomial", multinomial, kByAten);
  rules.add_composite("aten::rrelu_with_noise_functional", rrelu_with_noise, kFloats);
}

}  // namespace tpjrt::ops
