// torch.amp.GradScaler: unscales gradients while looking for infinities, and updates the scale.
#include "ops/rule/expression.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {

namespace {

// aten::_amp_foreach_non_finite_check_and_unscale: each gradient times inv_scale; found_inf becomes 1 where any
// gradient had an infinity or NaN before that.
Values unscale(Emit& e, const Call& c) {
  Value found = c.tensor("found_inf");
  Value scale = e.reshape(c.tensor("inv_scale"), {});
  Values results;
  Value any = e.compare(hlo::Comparison::kNe, e.reshape(found, {}), e.zeros({found.element(), {}}));
  for (const Value& grad : c.tensors("self")) {
    Value wide = e.to(grad, Emit::compute_element(grad.element()));
    if (hlo::is_complex(wide.element())) throw Unsupported("unscaling of complex gradients");
    Value infinite = e.logical_not(e.unary("is_finite", wide));
    Dims all(grad.dims().size());
    for (size_t d = 0; d < all.size(); ++d) all[d] = static_cast<int64_t>(d);
    any = e.binary("or", any, e.reduce("or", infinite, e.zeros({ElementType::kPred, {}}), all));
    Value factor = e.broadcast_to(e.to(scale, wide.element()), wide.dims());
    results.push_back(e.to(e.mul(wide, factor), grad.element()));
  }
  Value one = e.ones(found.type);
  results.push_back(e.select(any, one, found));
  return results;
}

// aten::_amp_update_scale: a step with an infinity lowers the scale; growth_interval steps without one raise it.
Values update_scale(Emit& e, const Call& c) {
  Expression scale{&e, c.tensor("self")}, tracker{&e, c.tensor("growth_tracker")};
  Expression found{&e, e.reshape(c.tensor("found_inf"), scale.value.dims())};
  Expression successes = tracker + 1;
  Expression grows = successes == static_cast<double>(c.integer("growth_interval"));
  Expression grown = scale * c.real("scale_growth_factor");
  Expression raised = where(grows & grown.unary("is_finite"), grown, scale);
  Expression failed = found != 0;
  Expression failed_tracker = failed.with(e.reshape(failed.value, tracker.value.dims()));
  Expression restarts = failed_tracker | grows.with(e.reshape(grows.value, tracker.value.dims()));
  return {where(failed, scale * c.real("scale_backoff_factor"), raised).value, where(restarts, 0, successes).value};
}

}  // namespace

void add_scaling_rules(RuleTable& rules) {
  rules.add("aten::_amp_foreach_non_finite_check_and_unscale", unscale);
  rules.add("aten::_amp_update_scale", update_scale);
}

}  // namespace tpjrt::ops
