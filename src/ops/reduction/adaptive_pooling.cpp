// Adaptive pools: the output's size is given, and window i of a dimension is [i * in / out, ceil((i + 1) * in /
// out)).
//
// If in is a multiple of out these are plain pools. Otherwise each dimension is gathered separately, with one window
// for each output. All are as wide as the widest, and a mask covers the excess.
#include <algorithm>

#include "ops/reduction/reduction.h"

namespace tpjrt::ops {
namespace {

// The positions in each window of one dimension.
using Members = std::vector<Dims>;

Members windows(int64_t in, int64_t out) {
  Members all(static_cast<size_t>(out));
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = o * in / out; i < ((o + 1) * in + out - 1) / out; ++i) all[static_cast<size_t>(o)].push_back(i);
  }
  return all;
}

// Returns, for each position of one dimension, the windows that contain it.
Members holders(const Members& windows, int64_t in) {
  Members all(static_cast<size_t>(in));
  for (size_t o = 0; o < windows.size(); ++o) {
    for (int64_t i : windows[o]) all[static_cast<size_t>(i)].push_back(static_cast<int64_t>(o));
  }
  return all;
}

int64_t width(const Members& members) {
  size_t n = 1;
  for (const Dims& m : members) n = std::max(n, m.size());
  return static_cast<int64_t>(n);
}

// Returns the members' positions row by row, with `filler` where a row is shorter than the width.
Dims padded_rows(const Members& members, int64_t filler) {
  Dims flat;
  for (Dims row : members) {
    row.resize(static_cast<size_t>(width(members)), filler);
    flat.insert(flat.end(), row.begin(), row.end());
  }
  return flat;
}

// Returns x with dimension `dim` replaced by two, [members, width], and `fill` where there is no member.
Value gather_members(Emit& e, const Value& x, int64_t dim, const Members& members, const Value& fill) {
  const int64_t rows = static_cast<int64_t>(members.size()), columns = width(members);
  Dims dims = x.dims();
  dims[static_cast<size_t>(dim)] = rows;
  dims.insert(dims.begin() + dim + 1, columns);
  Dims positions = padded_rows(members, -1), present;
  bool in_order = true, complete = true;
  for (size_t i = 0; i < positions.size(); ++i) {
    present.push_back(positions[i] >= 0);
    complete &= positions[i] >= 0;
    in_order &= positions[i] == static_cast<int64_t>(i);
    positions[i] = std::max<int64_t>(positions[i], 0);
  }
  if (in_order && rows * columns == x.dim(dim)) return e.reshape(x, dims);
  Value indices = e.constant_dense(positions, {ElementType::kS32, {rows * columns}});
  Value taken = e.reshape(e.take(x, indices, dim), dims);
  if (complete) return taken;
  Value mask = e.constant_dense(present, {ElementType::kPred, {rows, columns}});
  return e.select(e.broadcast_in_dim(mask, dims, {dim, dim + 1}), taken, e.broadcast_to(fill, dims));
}

Value divide_by_width(Emit& e, const Value& x, int64_t dim, const Members& members) {
  std::vector<double> widths;
  for (const Dims& m : members) widths.push_back(static_cast<double>(m.size()));
  Value w = e.constant_dense(widths, {x.element(), {x.dim(dim)}});
  return e.div(x, e.broadcast_in_dim(w, x.dims(), {dim}));
}

// Returns the plain pool that computes the same over the last `spatial` dimensions, if there is one.
std::optional<Pool> plain_pool(const Type& in, const Type& out, int64_t spatial) {
  Pool p;
  p.spatial = spatial;
  for (size_t d = in.dims.size() - static_cast<size_t>(spatial); d < in.dims.size(); ++d) {
    if (in.dims[d] % out.dims[d] != 0) return std::nullopt;
    p.in.push_back(in.dims[d]);
    p.out.push_back(out.dims[d]);
    p.kernel.push_back(in.dims[d] / out.dims[d]);
  }
  p.stride = p.kernel;
  p.padding = Dims(p.in.size(), 0);
  p.dilation = Dims(p.in.size(), 1);
  return p;
}

// aten::_adaptive_avg_pool2d, _adaptive_avg_pool3d
template <int64_t spatial>
Values adaptive_avg_pool(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const Type out = e.type_of(c.result());
  const Dims within = x.rank() > spatial ? Dims(x.dims().end() - spatial - 1, x.dims().end()) : Dims{};
  if (std::ranges::count(within, 0) > 0) throw Mistake("nothing to take an average of");
  if (out.elements() == 0 || x.type.elements() == 0) return {e.zeros(out)};
  x = e.to(x, Emit::compute_element(x.element()));
  if (auto pool = plain_pool(x.type, out, spatial)) {
    Value sum = sum_windows(e, x, *pool);
    return {e.as(e.div(sum, e.constant(pool->taps(), sum.type)), c.result())};
  }
  for (int64_t dim = x.rank() - spatial; dim < x.rank(); ++dim) {
    Members members = windows(x.dim(dim), out.dims[static_cast<size_t>(dim)]);
    x = e.sum(gather_members(e, x, dim, members, e.zeros({x.element(), {}})), {dim + 1});
    x = divide_by_width(e, x, dim, members);
  }
  return {e.as(x, c.result())};
}

// aten::_adaptive_avg_pool2d_backward, _adaptive_avg_pool3d_backward
template <int64_t spatial>
Values adaptive_avg_pool_backward(Emit& e, const Call& c) {
  Value y = c.tensor("grad_output");
  const Type in = e.type_of(c.result());
  if (y.type.elements() == 0 || in.elements() == 0) return {e.zeros(in)};
  y = e.to(y, Emit::compute_element(y.element()));
  if (auto pool = plain_pool(in, y.type, spatial)) {
    // The windows are disjoint, so each gradient is repeated over its window.
    y = e.div(y, e.constant(pool->taps(), y.type));
    Dims dims(y.dims().begin(), y.dims().end() - spatial), kept;
    for (size_t d = 0; d < dims.size(); ++d) kept.push_back(static_cast<int64_t>(d));
    for (size_t d = 0; d < pool->in.size(); ++d) {
      kept.push_back(static_cast<int64_t>(dims.size()));
      dims.insert(dims.end(), {pool->out[d], pool->kernel[d]});
    }
    return {e.as(e.reshape(e.broadcast_in_dim(y, dims, kept), in.dims), c.result())};
  }
  for (int64_t dim = y.rank() - spatial; dim < y.rank(); ++dim) {
    const int64_t size = in.dims[static_cast<size_t>(dim)];
    Members members = windows(size, y.dim(dim));
    y = divide_by_width(e, y, dim, members);
    y = e.sum(gather_members(e, y, dim, holders(members, size), e.zeros({y.element(), {}})), {dim + 1});
  }
  return {e.as(y, c.result())};
}

// aten::adaptive_max_pool2d, adaptive_max_pool3d: indices are flat in the input's plane.
template <int64_t spatial>
Values adaptive_max_pool(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const Type out = e.type_of(c.result());
  if (out.elements() == 0) return {e.zeros(out), e.zeros(e.type_of(c.result(1)))};
  const int64_t first = x.rank() - spatial;
  Value lowest = e.lowest(x.element()), no_index = e.constant(kNoIndex, {ElementType::kS32, {}}), v = x;
  Dims inner;                   // the dimensions of v within a window
  std::vector<Dims> positions;  // per dimension of the input: its part of the flat index
  int64_t stride = 1;
  for (int64_t dim = x.rank() - 1; dim >= first; --dim) {
    positions.insert(positions.begin(), Dims());
    for (int64_t i = 0; i < x.dim(dim); ++i) positions.front().push_back(i * stride);
    stride *= x.dim(dim);
  }
  if (stride >= kNoIndex) throw Unsupported("a pooled plane of 2^31 elements or more");
  Value index = plane_sum(e, positions, ElementType::kS32);
  for (int64_t d = 0; d < spatial; ++d) {
    Members members = windows(x.dim(first + d), out.dims[static_cast<size_t>(first + d)]);
    v = gather_members(e, v, first + 2 * d, members, lowest);
    index = gather_members(e, index, 2 * d, members, no_index);
    inner.push_back(first + 2 * d + 1);
  }
  Values found = e.reduce({v, e.broadcast_to(index, v.dims())}, {lowest, no_index}, inner,
                          [&](const Values& a) { return better(e, a); });
  return {e.as(found[0], c.result()), e.as(found[1], c.result(1))};
}

// aten::adaptive_max_pool2d_backward, adaptive_max_pool3d_backward
template <int64_t spatial>
Values adaptive_max_pool_backward(Emit& e, const Call& c) {
  return {scatter_to_planes(e, c.tensor("grad_output"), c.tensor("indices"), e.type_of(c.result()), spatial)};
}

}  // namespace

void add_adaptive_pooling_rules(RuleTable& rules) {
  rules.add_composite("aten::_adaptive_avg_pool2d", adaptive_avg_pool<2>, kFloats);
  rules.add_composite("aten::_adaptive_avg_pool3d", adaptive_avg_pool<3>, kFloats);
  rules.add_composite("aten::_adaptive_avg_pool2d_backward", adaptive_avg_pool_backward<2>, kPooledByAten);
  rules.add_composite("aten::_adaptive_avg_pool3d_backward", adaptive_avg_pool_backward<3>, kByAten);
  rules.add_composite("aten::adaptive_max_pool2d", adaptive_max_pool<2>, kPooledByAten, kFloats);
  rules.add_composite("aten::adaptive_max_pool3d", adaptive_max_pool<3>, kByAten, kFloats);
  rules.add_composite("aten::adaptive_max_pool2d_backward", adaptive_max_pool_backward<2>, kPooledByAten);
  rules.add_composite("aten::adaptive_max_pool3d_backward", adaptive_max_pool_backward<3>, kByAten);
}

}  // namespace tpjrt::ops
