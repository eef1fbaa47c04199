// Bessel and Airy functions, and gradients of random draws: ATen's own scalar functions, traced. They are compiled by
// themselves: <ATen/native/Math.h> must not be there before traced.h.
#include "ops/pointwise/traced.h"

#include <ATen/native/Distributions.h>

#include "ops/pointwise/pointwise.h"

// Its loop goes by the argument.
namespace {
template <>
inline tpjrt::ops::Traced digamma_one<tpjrt::ops::Traced, tpjrt::ops::Traced>(tpjrt::ops::Traced x) {
  if (x.is_known()) return calc_digamma(x.number());
  return tpjrt::ops::Traced::of(x.expression().unary("chlo.digamma"));
}
}  // namespace

namespace tpjrt::ops {
namespace {

// A function of one number. f32 in f32, as the CPU's.
template <Traced (*function)(Traced)>
Values of_one(Emit& e, const Call& c) {
  Pointwise k(e, c);
  const Expression x = k(c.has("x") ? "x" : c.arguments[0].name);
  return k.give(traced(x, [&] { return function(Traced::of(x)); }));
}

// aten::_standard_gamma_grad: of the drawn numbers by alpha. In f64, as the CPU's.
Values standard_gamma_grad(Emit& e, const Call& c) {
  Pointwise k(e, c, ElementType::kF64);
  const Expression alpha = k("self"), drawn = k("output");
  return k.give(
      traced(alpha, [&] { return standard_gamma_grad_one<Traced, Traced>(Traced::of(alpha), Traced::of(drawn)); }));
}

// aten::_dirichlet_grad
Values dirichlet_grad(Emit& e, const Call& c) {
  Pointwise k(e, c, ElementType::kF64);
  const Expression x = k("x"), alpha = k("alpha"), total = k("total");
  return k.give(traced(
      x, [&] { return dirichlet_grad_one<Traced, Traced>(Traced::of(x), Traced::of(alpha), Traced::of(total)); }));
}

}  // namespace

void add_traced_rules(RuleTable& rules) {
  rules.add("aten::special_airy_ai", of_one<airy_ai_forward<Traced>>, kNotComplex);
  rules.add("aten::special_bessel_j0", of_one<bessel_j0_forward<Traced>>, kNotComplex);
  rules.add("aten::special_bessel_j1", of_one<bessel_j1_forward<Traced>>, kNotComplex);
  rules.add("aten::special_bessel_y0", of_one<bessel_y0_forward<Traced>>, kNotComplex);
  rules.add("aten::special_bessel_y1", of_one<bessel_y1_forward<Traced>>, kNotComplex);
  rules.add("aten::special_modified_bessel_k0", of_one<modified_bessel_k0_forward<Traced>>, kNotComplex);
  rules.add("aten::special_modified_bessel_k1", of_one<modified_bessel_k1_forward<Traced>>, kNotComplex);
  rules.add("aten::special_scaled_modified_bessel_k0", of_one<scaled_modified_bessel_k0_forward<Traced>>, kNotComplex);
  rules.add("aten::special_scaled_modified_bessel_k1", of_one<scaled_modified_bessel_k1_forward<Traced>>, kNotComplex);
  rules.add("aten::special_spherical_bessel_j0", of_one<spherical_bessel_j0_forward<Traced>>, kNotComplex);
  rules.add("aten::_standard_gamma_grad", standard_gamma_grad, kFloats);
  rules.add("aten::_dirichlet_grad", dirichlet_grad, kFloats);
}

}  // namespace tpjrt::ops
