// Random numbers from a key: words of Threefry, and uniform and normal numbers made of them.
#include "ops/creation/draw.h"

#include <cmath>

#include "ops/rule/expression.h"

namespace tpjrt::ops {

Value random_bits(Emit& e, const Call& c, const Type& type) {
  // Draws words of 64 bits and splits them: drawing narrower types costs as much per number, and other algorithms far
  // more (XLA:CPU).
  const int64_t n = type.elements(), parts = 8 / hlo::byte_width(type.element), words = (n + parts - 1) / parts;
  Value& state = e.drawn_from(c.rng_key);
  auto [next, bits] = e.rng_bit_generator("THREE_FRY", state, {ElementType::kU64, {words}});
  state = next;
  if (parts > 1) {
    bits = e.reshape(e.bitcast_convert(bits, {type.element, {words, parts}}), {words * parts});
    bits = e.slice(bits, {0}, {n}, {1});
  }
  return e.reshape(bits, type.dims);
}

Value random_uniform(Emit& e, const Call& c, const Type& type) {
  // Takes as many bits as the type distinguishes in [0.5, 1), so rounding never reaches 1.
  int64_t resolution = 24;
  if (type.element == ElementType::kF64) resolution = 53;
  if (type.element == ElementType::kF16) resolution = 11;
  if (type.element == ElementType::kBF16) resolution = 8;
  if (!hlo::is_float(type.element) || hlo::byte_width(type.element) < 2) {
    throw Unsupported("uniform random numbers of this dtype");
  }
  const bool wide = resolution > 32;
  const Type drawn{wide ? ElementType::kU64 : ElementType::kU32, type.dims};
  const Value dropped = e.constant((wide ? 64 : 32) - resolution, drawn);
  Value bits = e.binary("shift_right_logical", random_bits(e, c, drawn), dropped);
  Value numbers = e.convert(bits, wide ? ElementType::kF64 : ElementType::kF32);
  return e.convert(e.mul(numbers, e.splat(std::ldexp(1.0, static_cast<int>(-resolution)), numbers.type)), type.element);
}

Value random_normal(Emit& e, const Call& c, const Type& type) {
  // Box-Muller: a radius and an angle give two numbers.
  const ElementType element = Emit::compute_element(type.element);
  const int64_t n = type.elements(), half = (n + 1) / 2;
  if (n == 0) return e.zeros(type);
  const Type pairs{element, {half}};
  Value above_zero = e.sub(e.ones(pairs), random_uniform(e, c, pairs));
  Value radius = e.sqrt(e.mul(e.splat(-2, pairs), e.log(above_zero)));
  const Value turns = random_uniform(e, c, pairs);
  const auto [cosine, sine] = of_turns({&e, turns});
  // Fused into the concatenation, XLA:CPU would compute the numbers one by one.
  constexpr int64_t kMany = 4096;
  const auto part = [&](const Expression& x) {
    const Value numbers = e.mul(radius, x.value);
    return half < kMany ? numbers : e.computed_once(numbers);
  };
  Value both = e.concatenate({part(cosine), part(sine)}, 0);
  return e.convert(e.reshape(e.slice(both, {0}, {n}, {1}), type.dims), type.element);
}

}  // namespace tpjrt::ops
