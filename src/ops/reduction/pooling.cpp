// max_pool, avg_pool and their backwards, in two and three dimensions (one dimension arrives as two).
#include "ops/reduction/reduction.h"

#include <algorithm>
#include <functional>
#include <map>

#include "ops/movement/movement.h"
#include "ops/rule/dims.h"

namespace tpjrt::ops {

int64_t Pool::taps() const { return count_of(kernel); }

bool Pool::tiles() const {
  for (size_t d = 0; d < kernel.size(); ++d) {
    if (padding[d] != 0 || dilation[d] != 1 || stride[d] != kernel[d] || in[d] != out[d] * kernel[d]) return false;
  }
  return true;
}

namespace {

Pool pool_of(const Call& c, int64_t spatial, const Type& in, const Type& out) {
  Pool p;
  p.spatial = spatial;
  auto list = [&](std::string_view name) {
    Dims values = c.ints(name);
    return values.size() == 1 ? Dims(static_cast<size_t>(spatial), values[0]) : values;
  };
  p.kernel = list("kernel_size");
  p.stride = list("stride");
  if (p.stride.empty()) p.stride = p.kernel;
  p.padding = list("padding");
  p.dilation = Dims(static_cast<size_t>(spatial), 1);
  for (const Argument& a : c.arguments) {
    if (a.name == "dilation") p.dilation = list("dilation");
  }
  p.in.assign(in.dims.end() - spatial, in.dims.end());
  p.out.assign(out.dims.end() - spatial, out.dims.end());
  return p;
}

// Returns `values` for the spatial dimensions, and `other` for those before them.
Dims extend(const Value& x, const Dims& values, int64_t other) {
  Dims all(x.dims().size() - values.size(), other);
  all.insert(all.end(), values.begin(), values.end());
  return all;
}

// Returns x with all that its windows cover: padded below, and padded or cropped above.
Value covered(Emit& e, const Value& x, const Value& fill, const Pool& p) {
  Dims high(p.in.size());
  for (size_t d = 0; d < high.size(); ++d) {
    high[d] = (p.out[d] - 1) * p.stride[d] + p.dilation[d] * (p.kernel[d] - 1) + 1 - p.in[d] - p.padding[d];
  }
  return e.pad(x, fill, extend(x, p.padding, 0), extend(x, high, 0), Dims(x.dims().size(), 0));
}

// Returns the element at `tap` of every window of a covered tensor.
Value slice_tap(Emit& e, const Value& x, const Pool& p, const Dims& tap) {
  Dims start(tap.size()), limit(tap.size());
  for (size_t d = 0; d < tap.size(); ++d) {
    start[d] = tap[d] * p.dilation[d];
    limit[d] = start[d] + (p.out[d] - 1) * p.stride[d] + 1;
  }
  Dims ends(x.dims().begin(), x.dims().end() - p.spatial);
  ends.insert(ends.end(), limit.begin(), limit.end());
  return e.slice(x, extend(x, start, 0), ends, extend(x, p.stride, 1));
}

// Computes the transpose, summed over all taps: puts part(tap) [..., out...] at that tap of every window in the
// input, and zero elsewhere. Positions with the same remainder by the stride are summed without gaps, and the
// remainders are then interleaved: XLA:CPU takes ten times as long for sums of parts with gaps between their
// elements.
Value place_taps(Emit& e, const Pool& p, const Type& y, const std::function<Value(const Dims&)>& part) {
  const size_t spatial = p.kernel.size(), front = y.dims.size() - spatial;
  const Value zero = e.zeros({y.element, {}});
  Dims rows(spatial);  // the number of positions with each remainder, rounded up
  std::map<Dims, Value> sums;
  for (size_t d = 0; d < spatial; ++d) rows[d] = (p.in[d] + p.stride[d] - 1) / p.stride[d];
  for_each_position(p.kernel, [&](const Dims& tap) {
    Dims remainder(spatial), low(y.dims.size(), 0), high = low;
    for (size_t d = 0; d < spatial; ++d) {
      const int64_t first = tap[d] * p.dilation[d] - p.padding[d];
      remainder[d] = ((first % p.stride[d]) + p.stride[d]) % p.stride[d];
      low[front + d] = (first - remainder[d]) / p.stride[d];
      high[front + d] = rows[d] - low[front + d] - p.out[d];
    }
    Value placed = e.pad(part(tap), zero, low, high, Dims(low.size(), 0));
    Value& sum = sums[remainder];
    sum = sum ? e.add(sum, placed) : placed;
  });
  Dims sizes(y.dims.begin(), y.dims.begin() + static_cast<int64_t>(front));
  sizes.insert(sizes.end(), rows.begin(), rows.end());
  // From the last dimension to the first, [..., rows, ...] of each remainder become [..., rows · stride, ...].
  std::function<Value(size_t, Dims&)> interleaved = [&](size_t d, Dims& remainder) -> Value {
    if (d == spatial) {
      Value& sum = sums[remainder];
      return sum ? sum : e.zeros({y.element, sizes});
    }
    Values parts;
    for (remainder[d] = 0; remainder[d] < p.stride[d]; ++remainder[d]) parts.push_back(interleaved(d + 1, remainder));
    if (parts.size() == 1) return parts[0];
    Dims apart = parts[0].dims(), together = apart;
    apart.insert(apart.begin() + static_cast<int64_t>(front + d) + 1, 1);
    together[front + d] *= p.stride[d];
    for (Value& x : parts) x = e.reshape(x, apart);
    return e.reshape(e.concatenate(parts, static_cast<int64_t>(front + d) + 1), together);
  };
  Dims remainder(spatial, 0);
  const Value all = interleaved(0, remainder);
  Dims limit = sizes;
  for (size_t d = 0; d < spatial; ++d) limit[front + d] = p.in[d];
  return e.slice(all, Dims(limit.size(), 0), limit, Dims(limit.size(), 1));
}

hlo::Window window_over(const Value& x, const Dims& kernel, const Dims& stride, const Dims& dilation) {
  hlo::Window w;
  w.dimensions = extend(x, kernel, 1);
  w.strides = extend(x, stride, 1);
  w.base_dilations = Dims(x.dims().size(), 1);
  w.window_dilations = extend(x, dilation, 1);
  w.padding.assign(x.dims().size(), {0, 0});
  return w;
}

Values add_body(Emit& e, const Values& a) { return {e.add(a[0], a[1])}; }

}  // namespace

Value sum_windows(Emit& e, const Value& x, const Pool& p) {
  Value zero = e.zeros({x.element(), {}});
  if (p.taps() > kUnrolledTaps && p.tiles()) {
    Dims split(x.dims().begin(), x.dims().end() - p.spatial), inner;
    for (size_t d = 0; d < p.kernel.size(); ++d) {
      split.push_back(p.out[d]);
      inner.push_back(static_cast<int64_t>(split.size()));
      split.push_back(p.kernel[d]);
    }
    return e.sum(e.reshape(x, split), inner);
  }
  Value all = covered(e, x, zero, p);
  if (p.taps() > kUnrolledTaps) {
    return e.reduce_window({all}, {zero}, window_over(x, p.kernel, p.stride, p.dilation),
                           [&](const Values& a) { return add_body(e, a); })[0];
  }
  Value total;
  for_each_position(p.kernel, [&](const Dims& tap) {
    Value part = slice_tap(e, all, p, tap);
    total = total ? e.add(total, part) : part;
  });
  return total;
}

Value spread_windows(Emit& e, const Value& y, const Pool& p) {
  if (p.taps() > kUnrolledTaps) {
    // The window is reversed: each input position sums the strided outputs whose windows contain it.
    Dims low(p.in.size()), high(p.in.size()), interior(p.in.size());
    for (size_t d = 0; d < p.in.size(); ++d) {
      int64_t reach = p.dilation[d] * (p.kernel[d] - 1);
      low[d] = reach - p.padding[d];
      high[d] = p.in[d] + reach - low[d] - (p.out[d] - 1) * p.stride[d] - 1;
      interior[d] = p.stride[d] - 1;
    }
    Value zero = e.zeros({y.element(), {}});
    Value all = e.pad(y, zero, extend(y, low, 0), extend(y, high, 0), extend(y, interior, 0));
    return e.reduce_window({all}, {zero}, window_over(y, p.kernel, Dims(p.in.size(), 1), p.dilation),
                           [&](const Values& a) { return add_body(e, a); })[0];
  }
  return place_taps(e, p, y.type, [&](const Dims&) { return y; });
}

Value plane_sum(Emit& e, const std::vector<Dims>& values, ElementType element) {
  Dims dims;
  for (const Dims& v : values) dims.push_back(static_cast<int64_t>(v.size()));
  Value total;
  for (size_t d = 0; d < values.size(); ++d) {
    Value part = e.constant_dense(values[d], {element, {dims[d]}});
    part = e.broadcast_in_dim(part, dims, {static_cast<int64_t>(d)});
    total = total ? e.add(total, part) : part;
  }
  return total;
}

Values better(Emit& e, const Values& arguments) {
  const Value &av = arguments[0], &ai = arguments[1], &bv = arguments[2], &bi = arguments[3];
  auto both = [&](const Value& x, const Value& y) { return e.binary("and", x, y); };
  auto either = [&](const Value& x, const Value& y) { return e.binary("or", x, y); };
  using enum hlo::Comparison;
  Value an = e.isnan(av), bn = e.isnan(bv);
  Value greater = either(e.compare(kGt, bv, av), both(bn, e.logical_not(an)));
  Value first = both(e.compare(kEq, bv, av), e.compare(kLt, bi, ai));
  Value last = both(both(an, bn), e.compare(kGt, bi, ai));
  Value take = either(greater, either(first, last));
  return {e.select(take, bv, av), e.select(take, bi, ai)};
}

Value scatter_to_planes(Emit& e, const Value& grad, const Value& indices, const Type& like, int64_t spatial) {
  auto flat = [&](const Dims& dims) {
    Dims two{1, 1};
    for (size_t d = 0; d < dims.size(); ++d) two[d + static_cast<size_t>(spatial) >= dims.size()] *= dims[d];
    return two;
  };
  if (grad.type.elements() == 0 || like.elements() == 0) return e.zeros(like);
  ElementType wide = Emit::compute_element(grad.element());
  Value rows = scatter_along(e, e.zeros({wide, flat(like.dims)}), 1, e.reshape(indices, flat(indices.dims())),
                             e.reshape(e.to(grad, wide), flat(grad.dims())), Combine::kAdd);
  return e.to(e.reshape(rows, like.dims), like.element);
}

namespace {

// --- max_pool -------------------------------------------------------------------------------------------------------

Dims plane_strides(const Dims& sizes) {
  Dims strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

// Returns for each window the flat index in the plane of its tap 0, or with `inside` of its first tap that is not
// padding.
Value window_starts(Emit& e, const Pool& p, bool inside) {
  Dims plane = plane_strides(p.in);
  std::vector<Dims> starts(p.in.size());
  for (size_t d = 0; d < starts.size(); ++d) {
    for (int64_t o = 0; o < p.out[d]; ++o) {
      int64_t at = o * p.stride[d] - p.padding[d];
      if (inside && at < 0) at += (-at + p.dilation[d] - 1) / p.dilation[d] * p.dilation[d];
      starts[d].push_back(at * plane[d]);
    }
  }
  return plane_sum(e, starts, ElementType::kS32);
}

int64_t tap_offset(const Pool& p, const Dims& tap) {
  Dims plane = plane_strides(p.in);
  int64_t offset = 0;
  for (size_t d = 0; d < tap.size(); ++d) offset += tap[d] * p.dilation[d] * plane[d];
  return offset;
}

void check_plane(const Pool& p) {
  if (plane_strides(p.in)[0] * p.in[0] >= kNoIndex) throw Unsupported("a pooled plane of 2^31 elements or more");
}

// aten::max_pool2d_with_indices, max_pool3d_with_indices: indices are flat in the input's plane. A tap replaces the
// best so far if it is greater or NaN, as in PyTorch's loop, so a window of -inf has the index of its first element.
template <int64_t spatial>
Values max_pool(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const Type out = e.type_of(c.result());
  if (out.elements() == 0) return {e.zeros(out), e.zeros(e.type_of(c.result(1)))};
  const Pool p = pool_of(c, spatial, x.type, out);
  check_plane(p);
  const Type index{ElementType::kS32, out.dims};
  Value lowest = e.lowest(x.element()), best, at;
  if (p.taps() <= kUnrolledTaps) {
    Value all = covered(e, x, lowest, p), starts = window_starts(e, p, false);
    best = e.broadcast_to(lowest, out.dims);
    at = e.broadcast_to(window_starts(e, p, true), out.dims);
    for_each_position(p.kernel, [&](const Dims& tap) {
      Value v = slice_tap(e, all, p, tap);
      Value i = e.broadcast_to(e.add(starts, e.constant(tap_offset(p, tap), starts.type)), out.dims);
      Value take = e.binary("or", e.compare(hlo::Comparison::kGt, v, best), e.isnan(v));
      best = e.select(take, v, best);
      at = e.select(take, i, at);
    });
  } else {
    Dims plane = plane_strides(p.in);
    std::vector<Dims> positions(p.in.size());
    for (size_t d = 0; d < positions.size(); ++d) {
      for (int64_t i = 0; i < p.in[d]; ++i) positions[d].push_back(i * plane[d]);
    }
    Value no_index = e.constant(kNoIndex, {ElementType::kS32, {}});
    Value flat = e.broadcast_to(plane_sum(e, positions, ElementType::kS32), x.dims());
    Values found =
        e.reduce_window({covered(e, x, lowest, p), covered(e, flat, no_index, p)}, {lowest, no_index},
                        window_over(x, p.kernel, p.stride, p.dilation), [&](const Values& a) { return better(e, a); });
    best = found[0];
    at = found[1];
  }
  return {e.as(best, c.result()), e.as(at, c.result(1))};
}

// aten::max_pool2d_with_indices_backward, max_pool3d_with_indices_backward: in small windows each tap takes the
// gradient where the index names it, without a scatter.
template <int64_t spatial>
Values max_pool_backward(Emit& e, const Call& c) {
  Value dy = c.tensor("grad_output"), indices = c.tensor("indices");
  const Type in = e.type_of(c.result());
  if (dy.type.elements() == 0) return {e.zeros(in)};
  const Pool p = pool_of(c, spatial, in, dy.type);
  check_plane(p);
  if (p.taps() > kUnrolledTaps) return {scatter_to_planes(e, dy, indices, in, spatial)};
  Value y = e.to(dy, Emit::compute_element(dy.element())), zero = e.zeros(y.type);
  Value starts = e.broadcast_to(window_starts(e, p, false), y.dims());
  const Value offset = e.computed_once(e.sub(e.to(indices, ElementType::kS32), starts));
  const Value total = place_taps(e, p, y.type, [&](const Dims& tap) {
    Value here = e.constant(tap_offset(p, tap), offset.type);
    return e.select(e.compare(hlo::Comparison::kEq, offset, here), y, zero);
  });
  return {e.as(total, c.result())};
}

// --- avg_pool -------------------------------------------------------------------------------------------------------

// Returns x divided by the number of elements that its windows count.
Value divide_by_count(Emit& e, const Call& c, const Value& x, const Pool& p) {
  auto full = [&](int64_t n) { return e.constant(n, x.type); };
  if (auto divisor = c.optional_integer("divisor_override")) return e.div(x, full(*divisor));
  const bool count_padding = c.boolean("count_include_pad");
  Value count;
  int64_t common = 1;  // the product over dimensions whose windows all count the same
  for (size_t d = 0; d < p.in.size(); ++d) {
    Dims counts;
    for (int64_t o = 0; o < p.out[d]; ++o) {
      int64_t start = o * p.stride[d] - p.padding[d], end = std::min(start + p.kernel[d], p.in[d] + p.padding[d]);
      if (!count_padding) {
        start = std::max<int64_t>(start, 0);
        end = std::min(end, p.in[d]);
      }
      counts.push_back(std::max<int64_t>(end - start, 1));
    }
    if (std::all_of(counts.begin(), counts.end(), [&](int64_t n) { return n == counts[0]; })) {
      common *= counts[0];
      continue;
    }
    Value part = e.to(e.constant_dense(counts, {ElementType::kS64, {p.out[d]}}), x.element());
    part = e.broadcast_in_dim(part, x.dims(), {x.rank() - p.spatial + static_cast<int64_t>(d)});
    count = count ? e.mul(count, part) : part;
  }
  if (!count) return common == 1 ? x : e.div(x, full(common));
  return e.div(x, common == 1 ? count : e.mul(count, full(common)));
}

// aten::avg_pool2d, avg_pool3d: integers divide as integers.
template <int64_t spatial>
Values avg_pool(Emit& e, const Call& c) {
  const ElementType element = c.tensor("self").element();
  if (!hlo::is_float(element) && element != ElementType::kS64) throw Mistake("averages of integers other than int64");
  Value x = c.tensor("self");
  const Type out = e.type_of(c.result());
  if (out.elements() == 0) return {e.zeros(out)};
  const Pool p = pool_of(c, spatial, x.type, out);
  x = e.to(x, Emit::compute_element(x.element()));
  return {e.as(divide_by_count(e, c, sum_windows(e, x, p), p), c.result())};
}

// aten::avg_pool2d_backward, avg_pool3d_backward
template <int64_t spatial>
Values avg_pool_backward(Emit& e, const Call& c) {
  Value dy = c.tensor("grad_output");
  const Type in = e.type_of(c.result());
  if (dy.type.elements() == 0) return {e.zeros(in)};
  const Pool p = pool_of(c, spatial, in, dy.type);
  dy = e.to(dy, Emit::compute_element(dy.element()));
  return {e.as(spread_windows(e, divide_by_count(e, c, dy, p), p), c.result())};
}

}  // namespace

void add_pooling_rules(RuleTable& rules) {
  rules.add_composite("aten::max_pool2d_with_indices", max_pool<2>, kLastByAten, kReals);
  rules.add_composite("aten::max_pool3d_with_indices", max_pool<3>, kReals);
  rules.add_composite("aten::max_pool2d_with_indices_backward", max_pool_backward<2>, kPooledByAten, kFloats);
  rules.add_composite("aten::max_pool3d_with_indices_backward", max_pool_backward<3>, kByAten, kFloats);
  rules.add_composite("aten::avg_pool2d", avg_pool<2>);
  rules.add_composite("aten::avg_pool3d", avg_pool<3>);
  rules.add_composite("aten::avg_pool2d_backward", avg_pool_backward<2>);
  rules.add_composite("aten::avg_pool3d_backward", avg_pool_backward<3>);
  add_adaptive_pooling_rules(rules);
}

}  // namespace tpjrt::ops
