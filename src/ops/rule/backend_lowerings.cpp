// The default lowerings: StableHLO's op of that name, where there is one.
#include "ops/rule/backend_lowerings.h"

#include <algorithm>
#include <cmath>

#include "ops/rule/expression.h"

namespace tpjrt::ops {

const BackendLowerings& BackendLowerings::on(Target target) {
  static const BackendLowerings plain;
  switch (target) {
    case Target::kAny: return plain;
    case Target::kCuda: return plain;
    case Target::kCpu: return cpu_lowerings();
    case Target::kCpuWithKernels: return cpu_lowerings();
  }
  throw std::logic_error("no lowerings for this target");
}

Value BackendLowerings::computed_once(Emit&, const Value& x) const { return x; }

Value BackendLowerings::bfloat16_of(Emit& e, const Value& integers) const {
  return e.Builder::convert(integers, ElementType::kBF16);
}

Value BackendLowerings::rounded_below(Emit&, const Value& x, const Value&) const { return x; }

Value BackendLowerings::dot_general(Emit& e, const Value& lhs, const Value& rhs, const hlo::DotDimensions& dimensions,
                                    ElementType result, std::string_view precision) const {
  // XLA divides by the size that is summed over where it folds a product of constants, which ends the process.
  if (lhs.type.elements() == 0 || rhs.type.elements() == 0) {
    Dims dims;
    for (const int64_t i : dimensions.lhs_batch) dims.push_back(lhs.dim(i));
    const auto add_free = [&](const Value& x, const Dims& batch, const Dims& contracting) {
      for (int64_t i = 0; i < x.rank(); ++i) {
        if (std::ranges::count(batch, i) == 0 && std::ranges::count(contracting, i) == 0) dims.push_back(x.dim(i));
      }
    };
    add_free(lhs, dimensions.lhs_batch, dimensions.lhs_contracting);
    add_free(rhs, dimensions.rhs_batch, dimensions.rhs_contracting);
    return e.zeros({result, dims});
  }
  return e.Builder::dot_general(lhs, rhs, dimensions, result, precision);
}

Value BackendLowerings::sum(Emit& e, const Value& x, const Dims& dims) const {
  return e.reduce("add", x, e.zeros({x.element(), {}}), dims);
}

Value BackendLowerings::product(Emit& e, const Value& x, const Dims& dims) const {
  return e.reduce("multiply", x, e.ones({x.element(), {}}), dims);
}

Value BackendLowerings::extreme(Emit& e, std::string_view op, const Value& x, const Value& identity,
                                const Dims& dims) const {
  return e.reduce(op, x, identity, dims);
}

Expression BackendLowerings::larger_of(const Expression& a, const Expression& b) const { return maximum(a, b); }
Expression BackendLowerings::smaller_of(const Expression& a, const Expression& b) const { return minimum(a, b); }
Expression BackendLowerings::log1p(const Expression& x) const { return x.unary("log_plus_one"); }
Expression BackendLowerings::remainder_of(const Expression& a, const Expression& b) const {
  return a.apply("remainder", b);
}
Expression BackendLowerings::cosine(const Expression& x) const { return x.unary("cosine"); }
Expression BackendLowerings::sine(const Expression& x) const { return x.unary("sine"); }
Expression BackendLowerings::tangent(const Expression& x) const { return x.unary("tan"); }

CosineAndSine BackendLowerings::of_turns(const Expression& x) const {
  const Expression angle = x * (2 * M_PI);
  return {angle.unary("cosine"), angle.unary("sine")};
}

Expression BackendLowerings::arcsine(const Expression& x) const { return x.unary("chlo.asin"); }
Expression BackendLowerings::arccosine(const Expression& x) const { return x.unary("chlo.acos"); }
Expression BackendLowerings::arctangent(const Expression& x) const { return x.unary("chlo.atan"); }
Expression BackendLowerings::hyperbolic_arctangent(const Expression& x) const { return x.unary("chlo.atanh"); }
Expression BackendLowerings::angle_of(const Expression& y, const Expression& x) const { return y.apply("atan2", x); }

}  // namespace tpjrt::ops
