// Backend-specific lowerings of idioms and formulas that many rules share, and the targets that have them.
#pragma once

#include <cstdint>
#include <string_view>

#include "ops/rule/call.h"

namespace tpjrt::ops {

// The compiler that a program is for.
enum class Target : uint8_t {
  kAny,             // plain StableHLO, which every platform takes
  kCpu,             // XLA:CPU; ops/xla_cpu replaces its slow or wrong lowerings
  kCuda,            // XLA:GPU on NVIDIA's GPUs
  kCpuWithKernels,  // XLA:CPU, in programs that may call the handlers of src/kernels/cpu (Emit::call_kernel)
};

inline bool is_cpu(Target target) { return target == Target::kCpu || target == Target::kCpuWithKernels; }

struct Expression;  // expression.h
struct CosineAndSine;

// The emitter picks the lowerings once, by the program's target. The base class has the default ones. A platform whose
// compiler is slow at some of them, or wrong, overrides those in its room. emit.h and expression.h, through which rules
// reach them, say what they mean.
class BackendLowerings {
 public:
  static const BackendLowerings& on(Target target);
  virtual ~BackendLowerings() = default;

  virtual Value computed_once(Emit& e, const Value& x) const;
  virtual Value rounded_below(Emit& e, const Value& x, const Value& max) const;
  virtual Value dot_general(Emit& e, const Value& lhs, const Value& rhs, const hlo::DotDimensions& dimensions,
                            ElementType result, std::string_view precision) const;
  // Returns the type as which elements are moved (reshaped, sliced, joined, chosen): itself, or an unsigned integer
  // as wide.
  virtual ElementType carrier(ElementType element) const { return element; }
  virtual Value bfloat16_of(Emit& e, const Value& integers) const;
  // Reduce over at least one dimension, in the element type of x.
  virtual Value sum(Emit& e, const Value& x, const Dims& dims) const;
  virtual Value product(Emit& e, const Value& x, const Dims& dims) const;
  // Reduces by "maximum" or "minimum", likewise.
  virtual Value extreme(Emit& e, std::string_view op, const Value& x, const Value& identity, const Dims& dims) const;

  virtual Expression larger_of(const Expression& a, const Expression& b) const;
  virtual Expression smaller_of(const Expression& a, const Expression& b) const;
  virtual Expression log1p(const Expression& x) const;
  virtual Expression remainder_of(const Expression& a, const Expression& b) const;
  virtual Expression cosine(const Expression& x) const;
  virtual Expression sine(const Expression& x) const;
  virtual Expression tangent(const Expression& x) const;
  virtual CosineAndSine of_turns(const Expression& x) const;
  virtual Expression arcsine(const Expression& x) const;
  virtual Expression arccosine(const Expression& x) const;
  virtual Expression arctangent(const Expression& x) const;
  virtual Expression hyperbolic_arctangent(const Expression& x) const;
  virtual Expression angle_of(const Expression& y, const Expression& x) const;
};

// One function for each platform with lowerings of its own.
const BackendLowerings& cpu_lowerings();  // ops/xla_cpu/cpu_lowerings.cpp

}  // namespace tpjrt::ops
