// Bessel and Airy functions, and gradients of random draws: ATen's own scalar functions, traced. They are a file of
// their own because traced.h must come before <ATen/native/Math.h>.
#include "ops/pointwise/traced.h"

#include <ATen/native/Distributions.h>

#include "ops/pointwise/pointwise.h"

// ATen's loop depends on the argument, so XLA's function replaces it.
namespace {
template <>
inline tpjrt::ops::Traced digamma_one<tpjrt::ops::Traced, tpjrt::ops::Traced>(tpjrt::ops::Traced x) {
  if (x.is_known()) return calc_digamma(x.number());
  return tpjrt::ops::Traced::of(x.expression().unary("chlo.digamma"));
}
}  // namespace

namespace tpjrt::ops {
namespace {

// A function of one number. It computes f32 in f32, as the CPU does.
template <Traced (*function)(Traced)>
Values of_one(Emit& e, const Call& c) {
  Pointwise k(e, c);
  const Expression x = k(c.has("x") ? "x" : c.arguments[0].name);
  return k.give(traced(x, [&] { return function(Traced::of(x)); }));
}

// aten::_standard_gamma_grad: the gradient of the drawn numbers by alpha, in f64 as on the CPU.
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
  rules.add("aten::special_bessel_j0", of_one<bessel_j0_forward<Traced>>, kByAten, kNotComplex);
  rules.add("aten::special_bessel_j1", of_one<bessel_j1_forward<Traced>>, kByAten, kNotComplex);
  rules.add("aten::special_bessel_y0", of_one<bessel_y0_forward<Traced>>, kByAten, kNotComplex);
  rules.add("aten::special_bessel_y1", of_one<bessel_y1_forward<Traced>>, kByAten, kNotComplex);
  rules.add("aten::special_modified_bessel_k0", of_one<modified_bessel_k0_forward<Traced>>, kNotComplex);
  rules.add("aten::special_modified_bessel_k1", of_one<modified_bessel_k1_forward<Traced>>, kNotComplex);
  rules.add("aten::special_scaled_modified_bessel_k0", of_one<scaled_modified_bessel_k0_forward<Traced>>, kNotComplex);
  rules.add("aten::special_scaled_modified_bessel_k1", of_one<scaled_modified_bessel_k1_forward<Traced>>, kNotComplex);
  rules.add("aten::special_spherical_bessel_j0", of_one<spherical_bessel_j0_forward<Traced>>, kNotComplex);
  rules.add("aten::_standard_gamma_grad", standard_gamma_grad, kFloats);
  rules.add("aten::_dirichlet_grad", dirichlet_grad, kFloats);
}

}  // namespace tpjrt::ops
