// Tensors made of scalars alone: fill, zero, arange, linspace, logspace, eye.
#include <cmath>

#include "ops/rule/rules.h"

namespace tpjrt::ops {

namespace {

// aten::fill.Scalar: self provides the type alone.
Values fill_scalar(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  return {e.broadcast_to(c.scalar(e, "value", result.element), result.dims)};
}

// aten::fill.Tensor: value is 0-d.
Values fill_tensor(Emit& e, const Call& c) { return {e.as(e.reshape(c.tensor("value"), {}), c.result())}; }

// aten::zero
Values zero(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  return {e.broadcast_to(e.zeros({result.element, {}}), result.dims)};
}

// aten::arange, aten::arange.start, aten::arange.start_step, aten::range, aten::range.step (which includes its end):
// integers in int64, everything else in double, then rounded.
Values arange(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  auto given = [&](std::string_view name, int64_t otherwise) {
    for (const Argument& argument : c.arguments) {
      if (argument.name == name && argument.kind == Argument::Kind::kScalar) return c.constant_scalar(name);
    }
    return c10::Scalar(otherwise);
  };
  const c10::Scalar start = given("start", 0), step = given("step", 1);
  if (result.elements() == 0) return {e.zeros(result)};
  const bool integral = start.isIntegral(true) && step.isIntegral(true);
  const Type type{integral || hlo::is_integer(result.element) ? ElementType::kS64 : ElementType::kF64, result.dims};
  Value i = e.iota(type, 0);
  if (type.element == ElementType::kS64) {
    if (step.toLong() != 1) i = e.mul(i, e.constant(step.toLong(), type));
    if (start.toLong() != 0) i = e.add(i, e.constant(start.toLong(), type));
  } else {
    i = e.add(e.mul(i, e.splat(step.toDouble(), type)), e.splat(start.toDouble(), type));
  }
  return {e.to(i, result.element)};
}

// Returns `steps` points from start to end in `type`. The second half is counted from the end, so both ends are
// exact.
Value evenly_spaced(Emit& e, double start, double end, const Type& type) {
  const int64_t steps = type.dims[0];
  if (steps == 1) return e.splat(start, type);
  const Type place{ElementType::kS64, type.dims};
  Value i = e.iota(place, 0);
  Value step = e.splat((end - start) / static_cast<double>(steps - 1), type);
  Value up = e.add(e.splat(start, type), e.mul(step, e.convert(i, type.element)));
  Value rest = e.sub(e.constant(steps - 1, place), i);
  Value down = e.sub(e.splat(end, type), e.mul(step, e.convert(rest, type.element)));
  return e.select(e.compare(hlo::Comparison::kLt, i, e.constant(steps / 2, place)), up, down);
}

// The dtype in which the points are computed, and the ends, which torch first casts to an integer dtype.
struct Span {
  Type type;
  double start, end;
};

Span span_of(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  if (hlo::is_complex(result.element)) throw Unsupported("linspace of complex numbers");
  Span span{{Emit::compute_element(result.element), result.dims},
            c.constant_scalar("start").toDouble(),
            c.constant_scalar("end").toDouble()};
  if (!hlo::is_float(result.element)) {
    span.type.element = ElementType::kF64;
    span.start = std::trunc(span.start);
    span.end = std::trunc(span.end);
  }
  return span;
}

// aten::linspace
Values linspace(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  if (result.elements() == 0) return {e.zeros(result)};
  const Span span = span_of(e, c);
  return {e.to(evenly_spaced(e, span.start, span.end, span.type), result.element)};
}

// aten::logspace: powers of base at evenly spaced exponents.
Values logspace(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  if (result.elements() == 0) return {e.zeros(result)};
  const Span span = span_of(e, c);
  Value exponents = evenly_spaced(e, span.start, span.end, span.type);
  return {e.to(e.binary("power", e.splat(c.real("base"), span.type), exponents), result.element)};
}

// aten::eye, aten::eye.m
Values eye(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  const Type index{ElementType::kS32, result.dims};
  return {e.convert(e.compare(hlo::Comparison::kEq, e.iota(index, 0), e.iota(index, 1)), result.element)};
}

}  // namespace

void add_factory_rules(RuleTable& rules) {
  rules.add("aten::fill.Scalar", fill_scalar);
  rules.add("aten::fill.Tensor", fill_tensor);
  rules.add("aten::zero", zero);
  rules.add("aten::arange", arange, kReals);
  rules.add("aten::arange.start", arange, kReals);
  rules.add("aten::arange.start_step", arange, kReals);
  rules.add("aten::range", arange, kReals);
  rules.add("aten::range.step", arange, kReals);
  rules.add("aten::linspace", linspace, kNotBools);
  rules.add("aten::logspace", logspace, kNotBools);
  rules.add("aten::eye", eye);
  rules.add("aten::eye.m", eye);
}

}  // namespace tpjrt::ops
