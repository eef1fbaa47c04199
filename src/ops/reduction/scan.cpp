// Running reductions along a dimension: cumsum, cumprod, cummax, cummin, logcumsumexp.
#include <cmath>
#include <string_view>

#include "ops/rule/rules.h"

namespace tpjrt::ops {

namespace {

// aten::cumsum, aten::cumprod: integers are accumulated as int64 (the result's dtype says so), small floats as f32.
Values accumulated(Emit& e, const Call& c, std::string_view op, double initial) {
  Value x = e.to(c.tensor("self"), e.element(c.result()));
  if (x.rank() == 0 || x.type.elements() == 0) return {x};
  return {e.upcast(x, [&](const Value& y) { return e.cumulative(y, c.dim("dim", y.rank()), op, initial); })};
}

Values cumsum(Emit& e, const Call& c) { return accumulated(e, c, "add", 0); }
Values cumprod(Emit& e, const Call& c) { return accumulated(e, c, "multiply", 1); }

// aten::cummax, aten::cummin: the index is that of the last equal element so far; NaN wins and stays.
Values running_extreme(Emit& e, const Call& c, bool largest) {
  Value x = c.tensor("self");
  const int64_t dim = c.dim("dim", x.rank());
  if (x.rank() == 0 || x.type.elements() == 0) return {x, e.zeros({ElementType::kS64, x.dims()})};
  Value values = e.cumulative(x, dim, largest ? "maximum" : "minimum", largest ? -INFINITY : INFINITY);
  Value reached = e.compare(hlo::Comparison::kEq, x, values);
  if (hlo::is_float(x.element())) reached = e.binary("or", reached, e.isnan(x));
  Value position = e.iota({ElementType::kS64, x.dims()}, dim);
  Value indices = e.cumulative(e.select(reached, position, e.zeros(position.type)), dim, "maximum", 0);
  return {values, indices};
}

Values cummax(Emit& e, const Call& c) { return running_extreme(e, c, true); }
Values cummin(Emit& e, const Call& c) { return running_extreme(e, c, false); }

// Returns log(exp(a) + exp(b)) of scalars, exact for infinities; NaN propagates.
Value log_add_exp(Emit& e, const Value& a, const Value& b) {
  Value top = e.maximum(a, b);
  Value gap = e.neg(e.unary("abs", e.sub(a, b)));
  Value sum = e.add(top, e.unary("log_plus_one", e.exp(gap)));
  return e.select(e.unary("is_finite", top), sum, top);
}

// aten::logcumsumexp: a window that ends at each element and begins before the first.
Values logcumsumexp(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  if (hlo::is_complex(x.element())) throw Unsupported("logcumsumexp of complex numbers");
  const auto dim = static_cast<size_t>(c.dim("dim", x.rank()));
  if (x.rank() == 0 || x.type.elements() == 0) return {x};
  const Dims ones(x.dims().size(), 1);
  hlo::Window window{ones, ones, ones, ones, {}};
  window.padding.resize(ones.size());
  window.dimensions[dim] = x.dims()[dim];
  window.padding[dim] = {x.dims()[dim] - 1, 0};
  return {e.upcast(x, [&](const Value& y) {
    auto body = [&](const Values& pair) -> Values { return {log_add_exp(e, pair[0], pair[1])}; };
    return e.reduce_window({y}, {e.lowest(y.element())}, window, body)[0];
  })};
}

}  // namespace

void add_scan_rules(RuleTable& rules) {
  rules.add_composite("aten::cumsum", cumsum, kByAten, kNotBools);
  rules.add_composite("aten::cumprod", cumprod, kByAten, kNotBools);
  rules.add_composite("aten::cummax", cummax, kByAten);
  rules.add_composite("aten::cummin", cummin, kByAten);
  rules.add_composite("aten::logcumsumexp", logcumsumexp, kByAten, kInexact);
  rules.add_composite("aten::_logcumsumexp", logcumsumexp, kInexact);
}

}  // namespace tpjrt::ops
