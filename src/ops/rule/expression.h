// Elementwise rules that read like their formulas: `return k.give(x * tanh(log1p(exp(x))))`.
//
// An Expression is a Value with arithmetic. Both operands of an operator have the same type, and a plain number
// becomes a constant of the other operand's type. An Elementwise returns a call's arguments as Expressions in the
// dtype in which torch computes the result, and in the result's shape.
#pragma once

#include "ops/rule/backend_lowerings.h"
#include "ops/rule/emit.h"

namespace tpjrt::ops {

struct Expression {
  Emit* e = nullptr;
  Value value;

  Expression with(Value v) const { return {e, std::move(v)}; }
  Expression number(double x) const {  // a constant of this type
    const hlo::Type& type = value.type;
    if (hlo::is_complex(type.element)) return with(e->constant_complex(x, 0, type));
    if (hlo::is_float(type.element)) return with(e->constant(x, type));
    return with(e->constant(static_cast<int64_t>(x), type));
  }
  Expression unary(std::string_view op) const { return with(e->unary(op, value)); }
  Expression apply(std::string_view op, const Expression& b) const { return with(e->binary(op, value, b.value)); }
  Expression apply(hlo::Comparison c, const Expression& b) const { return with(e->compare(c, value, b.value)); }
};

#define TPJRT_OPERATOR(symbol, op)                                                                       \
  inline Expression operator symbol(const Expression& a, const Expression& b) { return a.apply(op, b); } \
  inline Expression operator symbol(const Expression& a, double b) { return a.apply(op, a.number(b)); }  \
  inline Expression operator symbol(double a, const Expression& b) { return b.number(a).apply(op, b); }
TPJRT_OPERATOR(+, "add")
TPJRT_OPERATOR(-, "subtract")
TPJRT_OPERATOR(*, "multiply")
TPJRT_OPERATOR(/, "divide")
TPJRT_OPERATOR(<, hlo::Comparison::kLt)
TPJRT_OPERATOR(<=, hlo::Comparison::kLe)
TPJRT_OPERATOR(>, hlo::Comparison::kGt)
TPJRT_OPERATOR(>=, hlo::Comparison::kGe)
TPJRT_OPERATOR(==, hlo::Comparison::kEq)
TPJRT_OPERATOR(!=, hlo::Comparison::kNe)
#undef TPJRT_OPERATOR

inline Expression operator-(const Expression& a) { return a.unary("negate"); }
// For predicates.
inline Expression operator&(const Expression& a, const Expression& b) { return a.apply("and", b); }
inline Expression operator|(const Expression& a, const Expression& b) { return a.apply("or", b); }

inline Expression exp(const Expression& a) { return a.unary("exponential"); }
inline Expression expm1(const Expression& a) { return a.unary("exponential_minus_one"); }
inline Expression log(const Expression& a) { return a.unary("log"); }
inline Expression tanh(const Expression& a) { return a.unary("tanh"); }
inline Expression logistic(const Expression& a) { return a.unary("logistic"); }
inline Expression abs(const Expression& a) { return a.unary("abs"); }
// NaN propagates.
inline Expression maximum(const Expression& a, const Expression& b) { return a.apply("maximum", b); }
inline Expression minimum(const Expression& a, const Expression& b) { return a.apply("minimum", b); }
inline Expression maximum(const Expression& a, double b) { return maximum(a, a.number(b)); }
inline Expression minimum(const Expression& a, double b) { return minimum(a, a.number(b)); }
inline Expression where(const Expression& p, const Expression& a, const Expression& b) {
  return a.with(a.e->select(p.value, a.value, b.value));
}
inline Expression where(const Expression& p, const Expression& a, double b) { return where(p, a, a.number(b)); }
inline Expression where(const Expression& p, double a, const Expression& b) { return where(p, b.number(a), b); }

// Returns the larger of a and b. Two zeros give a, whatever their signs, as torch does on the CPU and XLA
// does not. NaN propagates. GPU plugins match a maximum beside a convolution.
inline Expression larger_of(const Expression& a, const Expression& b) { return a.e->backend().larger_of(a, b); }
// Returns the smaller of a and b, likewise.
inline Expression smaller_of(const Expression& a, const Expression& b) { return a.e->backend().smaller_of(a, b); }

// XLA's erf of f32 ends at 1 - 2^-23, so 1 + erf(x) would never be 0. From 3.92 on, 1 is the closest number.
inline Expression erf(const Expression& a) {
  const Expression value = a.unary("chlo.erf");
  return a.value.element() == ElementType::kF32 ? where(abs(a) > 3.92, a.unary("sign"), value) : value;
}

inline Expression log1p(const Expression& x) { return x.e->backend().log1p(x); }
// Returns the remainder of a after whole multiples of b, with the sign of a.
inline Expression remainder_of(const Expression& a, const Expression& b) { return a.e->backend().remainder_of(a, b); }

inline Expression cosine(const Expression& x) { return x.e->backend().cosine(x); }
inline Expression sine(const Expression& x) { return x.e->backend().sine(x); }
inline Expression tangent(const Expression& x) { return x.e->backend().tangent(x); }
inline Expression arcsine(const Expression& x) { return x.e->backend().arcsine(x); }
inline Expression arccosine(const Expression& x) { return x.e->backend().arccosine(x); }
inline Expression arctangent(const Expression& x) { return x.e->backend().arctangent(x); }
inline Expression hyperbolic_arctangent(const Expression& x) { return x.e->backend().hyperbolic_arctangent(x); }
// Returns the angle of (x, y), in (-pi, pi].
inline Expression angle_of(const Expression& y, const Expression& x) { return x.e->backend().angle_of(y, x); }

struct CosineAndSine {
  Expression cosine, sine;
};
// Returns cosine and sine of 2 pi x, for x in [0, 1).
inline CosineAndSine of_turns(const Expression& x) { return x.e->backend().of_turns(x); }

// Returns x - top for exp(), where no x is above its top: see Emit::rounded_below.
inline Expression below(const Expression& x, const Expression& top) {
  return x.with(x.e->rounded_below(x.value, top.value)) - top;
}

inline Dims dims_of(const graph::TensorType& type) { return Dims(type.sizes.begin(), type.sizes.end()); }

class Elementwise {
 public:
  // Computes in the shape of result 0 and the dtype in which torch computes it.
  Elementwise(Emit& e, const Call& c)
      : Elementwise(e, c, {Emit::compute_element(e.element(c.result())), dims_of(c.result())}) {}
  Elementwise(Emit& e, const Call& c, hlo::Type type) : e_(e), c_(c), type_(std::move(type)) {}

  Expression operator()(std::string_view tensor) const { return lift(c_.tensor(tensor)); }
  Expression lift(const Value& x) const { return {&e_, e_.broadcast_to(e_.to(x, type_.element), type_.dims)}; }
  // Returns a Scalar argument; a new value never recompiles.
  Expression scalar(std::string_view name) const {
    return {&e_, e_.broadcast_to(c_.scalar(e_, name, type_.element), type_.dims)};
  }
  // Returns the rule's results, converted to the results' dtypes.
  Values give(const Expression& x) const { return {e_.as(x.value, c_.result())}; }
  Values give(const Expression& x, const Expression& y) const {
    return {e_.as(x.value, c_.result()), e_.as(y.value, c_.result(1))};
  }

 private:
  Emit& e_;
  const Call& c_;
  hlo::Type type_;
};

// Returns x as the CPU's half-precision kernels keep it between steps: in the result's dtype. Other dtypes keep x
// itself.
inline Expression rounded(const Call& c, const Expression& x) {
  const ElementType element = x.e->element(c.result());
  if (element != ElementType::kF16 && element != ElementType::kBF16) return x;
  Expression y = x.with(x.e->reduce_precision(x.value, element));
  if (element == ElementType::kBF16) return y;
  // reduce_precision makes zeros of subnormal numbers, which are multiples of 2^-24.
  return where(abs(x) < 0x1p-14, (x * 0x1p24).unary("round_nearest_even") * 0x1p-24, y);
}

}  // namespace tpjrt::ops
