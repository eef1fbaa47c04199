// The default lowerings: StableHLO's op of that name, where there is one.
#include "ops/rule/forms.h"

#include <cmath>

#include "ops/rule/expression.h"

namespace tpjrt::ops {

const Forms& Forms::on(Target target) {
  static const Forms plain;
  switch (target) {
    case Target::kAny: return plain;
    case Target::kCuda: return plain;
    case Target::kCpu: return cpu_forms();
    case Target::kCpuWithKernels: return cpu_forms();
  }
  throw std::logic_error("no forms for this target");
}

Value Forms::computed_once(Emit&, const Value& x) const { return x; }

Value Forms::rounded_below(Emit&, const Value& x, const Value&) const { return x; }

Value Forms::dot_general(Emit& e, const Value& lhs, const Value& rhs, const hlo::DotDimensions& dimensions,
                         ElementType result, std::string_view precision) const {
  return e.Builder::dot_general(lhs, rhs, dimensions, result, precision);
}

Value Forms::sum(Emit& e, const Value& x, const Dims& dims) const {
  return e.reduce("add", x, e.zeros({x.element(), {}}), dims);
}

Value Forms::product(Emit& e, const Value& x, const Dims& dims) const {
  return e.reduce("multiply", x, e.ones({x.element(), {}}), dims);
}

Value Forms::extreme(Emit& e, std::string_view op, const Value& x, const Value& identity, const Dims& dims) const {
  return e.reduce(op, x, identity, dims);
}

Expression Forms::larger_of(const Expression& a, const Expression& b) const { return maximum(a, b); }
Expression Forms::smaller_of(const Expression& a, const Expression& b) const { return minimum(a, b); }
Expression Forms::log1p(const Expression& x) const { return x.unary("log_plus_one"); }
Expression Forms::remainder_of(const Expression& a, const Expression& b) const { return a.apply("remainder", b); }
Expression Forms::cosine(const Expression& x) const { return x.unary("cosine"); }
Expression Forms::sine(const Expression& x) const { return x.unary("sine"); }
Expression Forms::tangent(const Expression& x) const { return x.unary("tan"); }

CosineAndSine Forms::of_turns(const Expression& x) const {
  const Expression angle = x * (2 * M_PI);
  return {angle.unary("cosine"), angle.unary("sine")};
}

Expression Forms::arcsine(const Expression& x) const { return x.unary("chlo.asin"); }
Expression Forms::arccosine(const Expression& x) const { return x.unary("chlo.acos"); }
Expression Forms::arctangent(const Expression& x) const { return x.unary("chlo.atan"); }
Expression Forms::hyperbolic_arctangent(const Expression& x) const { return x.unary("chlo.atanh"); }
Expression Forms::angle_of(const Expression& y, const Expression& x) const { return y.apply("atan2", x); }

}  // namespace tpjrt::ops
