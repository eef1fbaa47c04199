// Copies and conversions, and ops that make complex numbers or take them apart.
#include <cmath>

#include "ops/pointwise/pointwise.h"

namespace tpjrt::ops {

namespace {

// aten::clone, aten::_to_copy: the result's type says all; memory formats belong to the storage.
Values converted(Emit& e, const Call& c) { return {e.as(c.tensor("self"), c.result())}; }

// aten::copy: src in self's type.
Values copy(Emit& e, const Call& c) { return {e.as(c.tensor("src"), c.result())}; }

// Throws Mistake for parts that PyTorch makes no complex number of.
void require_parts(const Value& a, const Value& b) {
  if (a.element() != b.element()) throw Mistake("the parts of a complex number differ in dtype");
  if (a.element() == ElementType::kBF16) throw Mistake("there are no complex numbers of bfloat16");
}

// aten::complex.
Values complex(Emit& e, const Call& c) {
  require_parts(c.tensor("real"), c.tensor("imag"));
  Pointwise k(e, c, hlo::real_element(e.element(c.result())));
  return {e.complex(k("real").value, k("imag").value)};
}

// aten::polar.
Values polar(Emit& e, const Call& c) {
  Pointwise k(e, c, hlo::real_element(e.element(c.result())));
  require_parts(c.tensor("abs"), c.tensor("angle"));
  Expression size = k("abs"), angle = k("angle");
  return {e.complex((size * cosine(angle)).value, (size * sine(angle)).value)};
}

// aten::angle: for a real number 0, pi where it is negative, or NaN.
Values angle(Emit& e, const Call& c) {
  Value z = c.tensor("self");
  if (hlo::is_complex(z.element())) {
    const Expression real{&e, e.unary("real", z)}, imaginary{&e, e.unary("imag", z)};
    return {e.as(angle_of(imaginary, real).value, c.result())};
  }
  Pointwise k(e, c);
  Expression x = k("self");
  return k.give(where(isnan(x), x, where(x < 0, x.number(M_PI), x.number(0))));
}

// aten::_conj_physical.
Values conj_physical(Emit& e, const Call& c) {
  Value z = c.tensor("self");
  if (!hlo::is_complex(z.element())) return {e.as(z, c.result())};
  return {e.complex(e.unary("real", z), e.neg(e.unary("imag", z)))};
}

}  // namespace

void add_conversion_rules(RuleTable& rules) {
  for (auto overload : {"aten::clone", "aten::_to_copy", "aten::lift_fresh_copy"}) rules.add(overload, converted);
  rules.add("aten::copy", copy);
  rules.add("aten::complex", complex);
  rules.add("aten::polar", polar);
  rules.add("aten::angle", angle);
  rules.add("aten::_conj_physical", conj_physical);
}

}  // namespace tpjrt::ops
