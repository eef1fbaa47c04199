// Helpers of the pointwise rules: operands that may be tensors or Scalars, and rules made from an op's name.
#pragma once

#include <algorithm>
#include <limits>

#include "ops/rule/call.h"
#include "ops/rule/expression.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {

// The overloads of a pointwise op differ only in which operands are Scalars.
class Pointwise : public Elementwise {
 public:
  // Computes in the dtype of result 0.
  Pointwise(Emit& e, const Call& c) : Elementwise(e, c), element(Emit::compute_element(e.element(c.result()))) {}
  // Computes in the given dtype.
  Pointwise(Emit& e, const Call& c, ElementType computed)
      : Elementwise(e, c, {computed, dims_of(c.result())}), element(computed) {}

  // Returns a tensor or a Scalar.
  Expression operator()(std::string_view argument) const { return scalar(argument); }

  const ElementType element;
};

// Returns whether the rule computes in floats; for rules without an operand of their own choice.
inline bool is_floating(const Pointwise& k) { return hlo::is_float(k.element); }

// Returns whether the Scalar has this value and was not seen to change. If so it is pinned, and the rule may emit a
// shorter program for it. Any other value is left to vary.
inline bool is_now(const Call& c, std::string_view name, double value) {
  const Argument& a = c.argument(name);
  if (a.kind != Argument::Kind::kScalar || a.varies || a.scalars.at(0).isComplex()) return false;
  if (a.scalars[0].toDouble() != value) return false;
  c.constant_scalar(name);
  return true;
}

// A name as a template argument, so that one function serves all ops that differ in a StableHLO op's name only.
template <size_t N>
struct OpName {
  char text[N];
  constexpr OpName(const char (&literal)[N]) { std::copy_n(literal, N, text); }  // implicit, to be written as a literal
  constexpr operator std::string_view() const { return {text, N - 1}; }
};

// aten::op(self): `op` in the result's dtype.
template <OpName op>
Values unary_rule(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(k("self").unary(op));
}

// aten::op(self, other).
template <OpName op>
Values binary_rule(Emit& e, const Call& c) {
  Pointwise k(e, c);
  return k.give(k("self").apply(op, k("other")));
}

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline Expression erfc(const Expression& x) { return x.unary("chlo.erfc"); }
inline Expression lgamma(const Expression& x) { return x.unary("chlo.lgamma"); }
// Returns x without its fraction; the sign of zero is kept.
inline Expression trunc(const Expression& x) { return where(x < 0, x.unary("ceil"), x.unary("floor")); }
inline Expression isnan(const Expression& x) { return x != x; }
inline Expression operator!(const Expression& p) { return p.unary("not"); }
// Returns whether the sign bit of a float is set.
Expression signbit(const Expression& x);
// Returns the size of x with the sign of `sign`, that of -0.0 and of NaN included.
Expression copysign(const Expression& x, const Expression& sign);
Expression square_root(const Expression& x);
// Returns whether p is true for any element, as a 0-d value for the condition of a loop.
Value any(const Expression& p);

// One function for each file.
void add_unary_rules(RuleTable& rules);       // pointwise_unary.cpp
void add_arithmetic_rules(RuleTable& rules);  // pointwise_arithmetic.cpp
void add_division_rules(RuleTable& rules);    // pointwise_division.cpp
void add_comparison_rules(RuleTable& rules);  // pointwise_comparison.cpp
void add_bitwise_rules(RuleTable& rules);     // pointwise_bitwise.cpp
void add_conversion_rules(RuleTable& rules);  // pointwise_conversion.cpp

}  // namespace tpjrt::ops
