// PyTorch's own scalar functions as expressions: a function template that ATen compiles for float and double is run
// with Traced numbers, which emit what it computes.
//
// Note [Traced functions]: such a function branches on its argument, and a program can't. Each time it asks whether a
// condition holds, one answer is taken, and the function is run again with the other, once for each of its paths. The
// conditions then select between the results. A program therefore computes all paths, of which there are few, and
// each element has the result of its own path: the formula of the CPU's kernel, with its special values.
//
// Include this before <ATen/native/Math.h>, whose calls of std:: must find these overloads.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>

#include "ops/rule/expression.h"

namespace tpjrt::ops {

// A known number, or an expression of the function being traced in this thread.
class Traced {
 public:
  constexpr Traced() = default;
  template <typename N, typename = std::enable_if_t<std::is_arithmetic_v<N>>>
  constexpr Traced(N number) : number_(static_cast<double>(number)) {}  // implicit, for 2 * x and T y = 0.0
  static Traced of(const Expression& x);
  // A sum counts as converged below it: std::numeric_limits::epsilon.
  static constexpr Traced tolerance() {
    Traced x;
    x.is_tolerance_ = true;
    return x;
  }

  bool is_known() const { return index_ < 0; }
  bool is_tolerance() const { return is_tolerance_; }
  double number() const { return number_; }
  int index() const { return index_; }
  // Returns the value in the type of the traced function.
  Expression expression() const;

 private:
  double number_ = 0;
  int index_ = -1;  // among the expressions of the trace
  bool is_tolerance_ = false;
};

// Returns the result of `function` over all its paths, in the type of `like`.
Expression traced(const Expression& like, const std::function<Traced()>& function);

// Returns whether the comparison holds: the known answer, or the one of the path that is taken. A question asked
// before on that path has the same answer, and -x < 0 holds where x < 0 is false, so that a function may call itself
// for the other sign.
bool holds(hlo::Comparison comparison, const Traced& a, const Traced& b);

Traced unary(std::string_view op, const Traced& x, double (*known)(double));
Traced power(const Traced& x, const Traced& y);

#define TPJRT_TRACED(symbol)                                               \
  inline Traced operator symbol(const Traced& a, const Traced& b) {        \
    if (a.is_known() && b.is_known()) return a.number() symbol b.number(); \
    return Traced::of(a.expression() symbol b.expression());               \
  }                                                                        \
  inline Traced& operator symbol## = (Traced & a, const Traced& b) { return a = a symbol b; }
TPJRT_TRACED(+)
TPJRT_TRACED(-)
TPJRT_TRACED(*)
TPJRT_TRACED(/)
#undef TPJRT_TRACED
inline bool operator<(const Traced& a, const Traced& b) { return holds(hlo::Comparison::kLt, a, b); }
inline bool operator<=(const Traced& a, const Traced& b) { return holds(hlo::Comparison::kLe, a, b); }
inline bool operator>(const Traced& a, const Traced& b) { return holds(hlo::Comparison::kGt, a, b); }
inline bool operator>=(const Traced& a, const Traced& b) { return holds(hlo::Comparison::kGe, a, b); }
inline bool operator==(const Traced& a, const Traced& b) { return holds(hlo::Comparison::kEq, a, b); }
inline bool operator!=(const Traced& a, const Traced& b) { return holds(hlo::Comparison::kNe, a, b); }
Traced negated(const Traced& x);
inline Traced operator-(const Traced& x) { return negated(x); }

}  // namespace tpjrt::ops

// The templates call these functions by the names of std.
namespace std {  // NOLINT(cert-dcl58-cpp)

inline tpjrt::ops::Traced cos(const tpjrt::ops::Traced& x) {
  return tpjrt::ops::unary("cosine", x, [](double y) { return std::cos(y); });
}
inline tpjrt::ops::Traced sin(const tpjrt::ops::Traced& x) {
  return tpjrt::ops::unary("sine", x, [](double y) { return std::sin(y); });
}
inline tpjrt::ops::Traced sqrt(const tpjrt::ops::Traced& x) {
  return tpjrt::ops::unary("sqrt", x, [](double y) { return std::sqrt(y); });
}
inline tpjrt::ops::Traced exp(const tpjrt::ops::Traced& x) {
  return tpjrt::ops::unary("exponential", x, [](double y) { return std::exp(y); });
}
inline tpjrt::ops::Traced log(const tpjrt::ops::Traced& x) {
  return tpjrt::ops::unary("log", x, [](double y) { return std::log(y); });
}
inline tpjrt::ops::Traced abs(const tpjrt::ops::Traced& x) {
  return tpjrt::ops::unary("abs", x, [](double y) { return std::abs(y); });
}
inline tpjrt::ops::Traced floor(const tpjrt::ops::Traced& x) {
  return tpjrt::ops::unary("floor", x, [](double y) { return std::floor(y); });
}
inline tpjrt::ops::Traced pow(const tpjrt::ops::Traced& x, const tpjrt::ops::Traced& y) {
  return tpjrt::ops::power(x, y);
}
inline bool isnan(const tpjrt::ops::Traced& x) { return x != x; }
inline bool isinf(const tpjrt::ops::Traced& x) {
  return std::abs(x) == tpjrt::ops::Traced(std::numeric_limits<double>::infinity());
}

template <>
struct numeric_limits<tpjrt::ops::Traced> {
  static constexpr tpjrt::ops::Traced infinity() { return numeric_limits<double>::infinity(); }
  static constexpr tpjrt::ops::Traced quiet_NaN() { return numeric_limits<double>::quiet_NaN(); }
  static constexpr tpjrt::ops::Traced epsilon() { return tpjrt::ops::Traced::tolerance(); }
};

}  // namespace std
