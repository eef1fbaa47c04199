// Reductions that return positions: argmax, argmin, max.dim, min.dim.
#include "ops/rule/rules.h"

namespace tpjrt::ops {

namespace {

struct Extreme {
  Value values, indices;  // `dim` dropped; the indices are s64
};

// Takes two plain reductions, which vectorize, instead of one over pairs: the extreme value, then its first position.
// NaN counts as the extreme of both kinds.
Extreme first_extreme(Emit& e, const Value& self, int64_t dim, bool largest) {
  if (self.rank() == 0) return {self, e.zeros({ElementType::kS64, {}})};
  const Value x = e.to(self, Emit::compute_element(self.element()));
  Extreme found;
  found.values = largest ? e.max(x, {dim}) : e.min(x, {dim});
  Value hit = e.compare(hlo::Comparison::kEq, x, e.broadcast_reduced(found.values, {dim}, x.dims()));
  if (hlo::is_float(x.element())) hit = e.binary("or", hit, e.isnan(x));
  const ElementType narrow = x.dim(dim) <= INT32_MAX ? ElementType::kS32 : ElementType::kS64;
  Value position = e.iota({narrow, x.dims()}, dim);
  Value none = e.constant(x.dim(dim), position.type);
  Value first = e.reduce("minimum", e.select(hit, position, none), e.constant(x.dim(dim), Type{narrow, {}}), {dim});
  found.indices = e.convert(first, ElementType::kS64);
  found.values = e.to(found.values, self.element());
  return found;
}

// aten::argmax, aten::argmin: without a dim, the position in the flattened tensor.
Values arg_extreme(Emit& e, const Call& c, bool largest) {
  Value x = c.tensor("self");
  int64_t dim = 0;
  if (c.has("dim")) {
    dim = c.dim("dim", x.rank());
  } else {
    x = e.reshape(x, {x.type.elements()});
  }
  Value indices = first_extreme(e, x, dim, largest).indices;
  return {e.reshape(indices, e.type_of(c.result()).dims)};
}

Values argmax(Emit& e, const Call& c) { return arg_extreme(e, c, true); }
Values argmin(Emit& e, const Call& c) { return arg_extreme(e, c, false); }

// aten::max.dim, aten::min.dim
Values extreme_dim(Emit& e, const Call& c, bool largest) {
  Value x = c.tensor("self");
  Extreme found = first_extreme(e, x, c.dim("dim", x.rank()), largest);
  const Dims dims = e.type_of(c.result()).dims;
  return {e.reshape(found.values, dims), e.reshape(found.indices, dims)};
}

Values max_dim(Emit& e, const Call& c) { return extreme_dim(e, c, true); }
Values min_dim(Emit& e, const Call& c) { return extreme_dim(e, c, false); }

}  // namespace

void add_arg_reduction_rules(RuleTable& rules) {
  rules.add_composite("aten::argmax", argmax);
  rules.add_composite("aten::argmin", argmin);
  rules.add_composite("aten::max.dim", max_dim);
  rules.add_composite("aten::min.dim", min_dim);
}

}  // namespace tpjrt::ops
