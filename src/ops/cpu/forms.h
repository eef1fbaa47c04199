// The forms that XLA:CPU takes well: docs/design/xla-cpu.md.
#pragma once

#include "ops/rule/forms.h"

namespace tpjrt::ops {

class CpuForms final : public Forms {
 public:
  // XLA:CPU fuses what computes x into what reads it, and computes an element again for each read of it, which barriers don't
  // stop. It does not look into a choice, nor into a call, which copies nothing (Note [Stored values], stored.h).
  Value computed_once(Emit& e, const Value& x) const override;
  // XLA:CPU has no bfloat16: each op of it is one of float32, between two conversions of each element, of which the second takes ten
  // instructions. Of integers a move is a move.
  ElementType carrier(ElementType element) const override {
    return element == ElementType::kBF16 ? ElementType::kU16 : element;
  }
  // XLA:CPU contracts a product and a difference to one fused multiply-add, and where the exact product exceeds the rounded
  // maximum by hundreds (a row of -1e10 * 100), exp() overflows. The minimum, which is x, keeps it rounded.
  Value rounded_below(Emit& e, const Value& x, const Value& max) const override;
  // XLA:CPU chooses between a library's kernel for a product of bf16 and its own before it is done with its operands: later it
  // leaves out batch dimensions of 1, and makes a transpose before the product part of it (a sum over a transposed tensor has
  // one). For what comes of it neither has a kernel, and the run fails. So there are no such dimensions, and a barrier keeps
  // transposes apart from an operand that contracts its last dimension, which is what the library takes.
  Value dot_general(Emit& e, const Value& lhs, const Value& rhs, const hlo::DotDimensions& dimensions,
                    ElementType result, std::string_view precision) const override;
  // XLA:CPU adds floats that lie one after the other into one vector, in which each addition waits for the last: a thousand rows of a
  // thousand in 0.8 ms. Elementwise sums of eight parts come first, which don't wait: 0.3 ms, and more accurate. A table is summed
  // one dimension after the other: as a line of another width its elements would be looked up by quotients. Integers wait as well.
  Value sum(Emit& e, const Value& x, const Dims& dims) const override;
  // Likewise.
  Value product(Emit& e, const Value& x, const Dims& dims) const override;
  // XLA:CPU takes the extreme of floats along the last dimension one after the other, for the sake of NaN: 2.8 ms for a
  // million, twenty times what a sum takes. Elementwise extremes of halves are vectorized: 0.14 ms. An odd number's halves
  // overlap, which changes no extreme. Of integers those of eight parts, as for sums.
  Value extreme(Emit& e, std::string_view op, const Value& x, const Value& identity, const Dims& dims) const override;

  // Of zeros XLA:CPU gives either.
  Expression larger_of(const Expression& a, const Expression& b) const override;
  Expression smaller_of(const Expression& a, const Expression& b) const override;

  // XLA:CPU vectorizes float32 arithmetic, but calls libm, element by element, for what it has no polynomial of.
  Expression log1p(const Expression& x) const override;
  Expression remainder_of(const Expression& a, const Expression& b) const override;
  Expression cosine(const Expression& x) const override;
  Expression sine(const Expression& x) const override;
  Expression tangent(const Expression& x) const override;
  CosineAndSine of_turns(const Expression& x) const override;
  Expression arcsine(const Expression& x) const override;
  Expression arccosine(const Expression& x) const override;
  Expression arctangent(const Expression& x) const override;
  Expression hyperbolic_arctangent(const Expression& x) const override;
  Expression angle_of(const Expression& y, const Expression& x) const override;
};

}  // namespace tpjrt::ops
