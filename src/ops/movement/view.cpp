// This project's own nodes, which read and write a storage's memory through sizes, strides and an offset.
//
// Note [Strided access]: a base value is dense, so in memory order it is a flat array of N elements. Consider a view
// whose dimensions don't overlap and whose strides s1 > s2 > … > sk divide one another. It is a box in that array
// reshaped to [N/s1, s1/s2, …, sk]: a reshape, a slice, a reshape, a transpose, and a broadcast for strides of 0. A
// stride that doesn't divide the one before it (every second column of five, the diagonals of a batch) counts in
// steps of their greatest common divisor. Where the box would cross a boundary of that grid, or the offset is not
// known, the grid covers the part that starts at the offset. Views off any grid (unfold, which overlaps) are read by
// a gather and written by a scatter.
//
// The common case, slices and selects of the base, is written in the base's own shape instead. XLA:CPU updates a
// donated argument in its memory although the result is read as well (a cache of keys), but copies it, twice, if a
// reshape is between the update and the program's result.
#include <algorithm>
#include <numeric>

#include "graph/type.h"
#include "ops/movement/movement.h"
#include "ops/rule/dims.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace {

// --- memory of one dtype seen as another ------------------------------------------------------------------------------

Value complex_to_reals(Emit& e, const Value& flat) {
  const int64_t n = flat.dim(0);
  Value re = e.reshape(e.unary("real", flat), {n, 1});
  Value im = e.reshape(e.unary("imag", flat), {n, 1});
  return e.reshape(e.concatenate({re, im}, 1), {2 * n});
}
Value reals_to_complex(Emit& e, const Value& flat) {
  const int64_t n = flat.dim(0) / 2;
  Value even = 2 * n == flat.dim(0) ? flat : e.slice(flat, {0}, {2 * n}, {1});
  Value pairs = e.reshape(even, {n, 2});
  const auto part = [&](int64_t i) { return e.reshape(e.slice(pairs, {0, i}, {n, i + 1}, {1, 1}), {n}); };
  return e.complex(part(0), part(1));
}

Value reinterpret(Emit& e, const Value& flat, ElementType to) {
  const ElementType from = flat.element();
  if (from == to) return flat;
  if (hlo::is_complex(from)) return reinterpret(e, complex_to_reals(e, flat), to);
  if (hlo::is_complex(to)) return reals_to_complex(e, reinterpret(e, flat, hlo::real_element(to)));
  if (from == ElementType::kPred) return reinterpret(e, e.convert(flat, ElementType::kU8), to);
  if (to == ElementType::kPred) return e.to(reinterpret(e, flat, ElementType::kU8), to);
  const int64_t before = hlo::byte_width(from);
  const int64_t after = hlo::byte_width(to);
  const int64_t n = flat.dim(0);
  if (before == after) return e.bitcast_convert(flat, {to, {n}});
  // The barrier: XLA's simplifier folds two bitcasts in a row into one, of the wrong shape where the widths differ.
  const Value bits = e.optimization_barrier({flat})[0];
  if (before > after) return e.reshape(e.bitcast_convert(bits, {to, {n, before / after}}), {n * before / after});
  const int64_t ratio = after / before;
  const int64_t whole = n / ratio;
  Value used = whole * ratio == n ? bits : e.slice(bits, {0}, {whole * ratio}, {1});
  return e.bitcast_convert(e.reshape(used, {whole, ratio}), {to, {whole}});
}

// Returns the base's memory, flat, in its own dtype.
Value memory_of(Emit& e, const Value& base, const graph::TensorType& form) {
  const auto order = form.memory_order();
  Value ordered = e.transpose(base, Dims(order.begin(), order.end()));
  return e.reshape(ordered, {ordered.type.elements()});
}
// Returns a base with this flat memory.
Value from_memory(Emit& e, const Value& flat, const graph::TensorType& form) {
  const auto order = form.memory_order();
  Dims ordered, back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    ordered.push_back(form.sizes[static_cast<size_t>(order[i])]);
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return e.transpose(e.reshape(flat, ordered), back);
}

// --- the grid ---------------------------------------------------------------------------------------------------------

struct Grid {
  std::vector<size_t> axes;  // of the view, by stride, largest first; those of size 1 or stride 0 are left out
  Dims sizes;                // the sizes of those axes
  Dims strides, steps;       // strides of the grid's axes, and the view's steps along them
  bool off_grid = false;
  int64_t span = 1;  // elements from the first to the last one

  int64_t extent(size_t i) const { return sizes[i] == 0 ? 0 : (sizes[i] - 1) * steps[i] + 1; }
  bool has_steps() const {
    return std::any_of(steps.begin(), steps.end(), [](int64_t step) { return step != 1; });
  }
};

Grid grid_of(const Dims& sizes, const Dims& strides) {
  Grid grid;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1 && strides[i] != 0) grid.axes.push_back(i);
  }
  std::stable_sort(grid.axes.begin(), grid.axes.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  for (size_t i = 0; i < grid.axes.size(); ++i) {
    const size_t axis = grid.axes[i];
    const int64_t outer = i == 0 ? 0 : grid.strides[i - 1];
    const int64_t stride = std::gcd(outer, strides[axis]);
    grid.sizes.push_back(sizes[axis]);
    grid.strides.push_back(stride);
    grid.steps.push_back(strides[axis] / stride);
    grid.span += (sizes[axis] - 1) * strides[axis];
    grid.off_grid |= i > 0 && grid.extent(i) > outer / stride;
  }
  return grid;
}

// Returns the shape [⌈n/s1⌉, s1/s2, …, sk] of the grid over n elements. A last dimension of one is left out, because
// XLA:CPU slices slowly along it.
Dims grid_shape(const Grid& grid, int64_t n) {
  Dims shape;
  int64_t outer = 0;
  for (size_t i = 0; i < grid.strides.size(); ++i) {
    const int64_t stride = grid.strides[i];
    shape.push_back(i == 0 ? (n + stride - 1) / stride : outer / stride);
    outer = stride;
  }
  if (outer != 1) shape.push_back(outer == 0 ? n : outer);
  return shape;
}

// Returns the position of `offset` in the grid, or nothing if the box crosses a boundary there.
Dims start_in(const Grid& grid, const Dims& shape, int64_t offset) {
  Dims start;
  for (size_t i = 0; i < grid.strides.size(); ++i) {
    start.push_back(offset / grid.strides[i]);
    offset %= grid.strides[i];
    if (start[i] + grid.extent(i) > shape[i]) return {};
  }
  if (shape.size() > start.size()) start.push_back(offset);
  return start;
}

Value over_grid(Emit& e, const Value& flat, const Dims& shape) {
  const int64_t missing = count_of(shape) - flat.dim(0);
  Value whole = missing == 0 ? flat : e.pad(flat, e.zeros({flat.element(), {}}), {0}, {missing}, {0});
  return e.reshape(whole, shape);
}

// Returns the box at `start` of the grid, in steps, or whole, without a last, single coordinate.
Value box(Emit& e, const Value& gridded, const Grid& grid, const Dims& start, bool whole = false) {
  Dims limit = start, steps(start.size(), 1), sizes;
  for (size_t i = 0; i < grid.sizes.size(); ++i) {
    limit[i] += grid.extent(i);
    if (!whole) steps[i] = grid.steps[i];
    sizes.push_back(whole ? grid.extent(i) : grid.sizes[i]);
  }
  if (limit.size() > grid.sizes.size()) limit.back() += 1;
  return e.reshape(e.slice(gridded, start, limit, steps), sizes);
}

// Returns the whole box, with `update` in its steps and `old` between them.
Value in_steps(Emit& e, const Value& update, const Value& old, const Grid& grid) {
  Value chosen;
  Dims between(grid.steps.size());
  for (size_t i = 0; i < grid.steps.size(); ++i) {
    between[i] = grid.steps[i] - 1;
    if (between[i] == 0) continue;
    const Type type{ElementType::kS64, old.dims()};
    Value rest = e.binary("remainder", e.iota(type, static_cast<int64_t>(i)), e.constant(grid.steps[i], type));
    Value here = e.compare(hlo::Comparison::kEq, rest, e.zeros(type));
    chosen = chosen ? e.binary("and", chosen, here) : here;
  }
  const Dims none(between.size(), 0);
  return e.select(chosen, e.pad(update, e.zeros({update.element(), {}}), none, none, between), old);
}

// Permutes the axes from grid order to the view's own, and restores the broadcast ones.
Value to_view(Emit& e, const Value& boxed, const Grid& grid, const Dims& sizes) {
  Dims axes;
  for (const size_t axis : grid.axes) axes.push_back(static_cast<int64_t>(axis));
  Dims by_axis = range(0, static_cast<int64_t>(axes.size()));
  std::sort(by_axis.begin(), by_axis.end(),
            [&](int64_t a, int64_t b) { return axes[static_cast<size_t>(a)] < axes[static_cast<size_t>(b)]; });
  Value ordered = e.transpose(boxed, by_axis);
  std::sort(axes.begin(), axes.end());
  bool broadcasts = false;
  Dims kept;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool has_axis = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i));
    broadcasts |= !has_axis && sizes[i] != 1;
  }
  if (!broadcasts) return e.reshape(ordered, sizes);
  return e.broadcast_in_dim(ordered, sizes, axes);
}

// Inverts to_view for an update, which has no broadcast axes of more than one element.
Value to_box(Emit& e, const Value& update, const Grid& grid) {
  Dims order, present;
  for (const size_t axis : grid.axes) order.push_back(static_cast<int64_t>(axis));
  for (int64_t i = 0; i < update.rank(); ++i) {
    if (std::find(order.begin(), order.end(), i) == order.end()) order.push_back(i);
  }
  return e.reshape(e.transpose(update, order), grid.sizes);
}

Value flat_positions(Emit& e, const Dims& sizes, const Dims& strides, const Value& offset) {
  const Type type{ElementType::kS64, sizes};
  Value positions = e.broadcast_in_dim(offset, sizes, {});
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1 || strides[i] == 0) continue;
    Value step = e.mul(e.iota(type, static_cast<int64_t>(i)), e.constant(strides[i], type));
    positions = e.add(positions, step);
  }
  return positions;
}

struct Access {
  Grid grid;
  Value offset;       // 0-d s64
  int64_t known = 0;  // its value, unless it varies
  bool varies = false;
};

Access access_of(Emit& e, const Call& c) {
  const Argument& offset = c.argument("offset");
  Access access{grid_of(c.ints("sizes"), c.ints("strides")), c.scalar(e, "offset", ElementType::kS64),
                offset.scalars.at(0).toLong(), offset.varies};
  return access;
}

// --- rules ------------------------------------------------------------------------------------------------------------

// Returns zeros for memory that was never written.
Values empty(Emit& e, const Call& c) { return {e.zeros(e.type_of(c.result()))}; }

// Returns the same values in another dtype, or with other strides.
Values convert(Emit& e, const Call& c) { return {e.as(c.tensor("input"), c.result())}; }

Values view(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  const Dims sizes = c.ints("sizes");
  if (result.elements() == 0) return {e.zeros(result)};
  Value flat = reinterpret(e, memory_of(e, c.tensor("base"), c.type("base")), result.element);
  const Access a = access_of(e, c);
  if (a.grid.off_grid) {
    Value positions = flat_positions(e, sizes, c.ints("strides"), a.offset);
    return {e.reshape(e.take(flat, e.reshape(positions, {result.elements()}), 0), sizes)};
  }
  if (!a.varies) {
    const Dims shape = grid_shape(a.grid, flat.dim(0));
    const Dims start = start_in(a.grid, shape, a.known);
    if (!start.empty()) return {to_view(e, box(e, over_grid(e, flat, shape), a.grid, start), a.grid, sizes)};
  }
  Value part = e.dynamic_slice(flat, {a.offset}, {a.grid.span});
  const Dims shape = grid_shape(a.grid, a.grid.span);
  return {to_view(e, box(e, over_grid(e, part, shape), a.grid, Dims(shape.size(), 0)), a.grid, sizes)};
}

graph::Sizes sizes_of(const Dims& dims) { return {dims.begin(), dims.end()}; }

// Returns the base with `update` written over a box of it, whose offset may vary.
Value write_box(Emit& e, const Call& c) {
  const graph::TensorType& base = c.type("base");
  const Argument& offset = c.argument("offset");
  const graph::TensorType view{base.dtype, sizes_of(c.ints("sizes")), sizes_of(c.ints("strides"))};
  const graph::Box box = graph::box_of(base, view, offset.scalars.at(0).toLong()).value();
  const Value place = c.scalar(e, "offset", ElementType::kS64);
  const auto constant = [&](int64_t value) { return e.constant(value, Type{ElementType::kS64, {}}); };
  Values starts;
  Dims order;
  for (size_t d = 0; d < base.sizes.size(); ++d) {
    if (box.axes[d] >= 0) order.push_back(box.axes[d]);
    if (!offset.varies || base.sizes[d] == 1) {
      starts.push_back(constant(box.starts[d]));
    } else {
      const Value steps = e.binary("divide", place, constant(base.strides[d]));
      starts.push_back(e.binary("remainder", steps, constant(base.sizes[d])));
    }
  }
  const Value update = c.tensor("update");
  for (int64_t axis = 0; axis < update.rank(); ++axis) {
    if (update.dim(axis) == 1) order.push_back(axis);
  }
  const Value boxed = e.reshape(e.transpose(update, order), Dims(box.extents.begin(), box.extents.end()));
  return e.dynamic_update_slice(c.tensor("base"), boxed, starts);
}

// Returns the base with `update` written over the view's elements.
Values write(Emit& e, const Call& c) {
  if (c.has("box")) return {write_box(e, c)};
  const graph::TensorType& form = c.type("base");
  const Dims strides = c.ints("strides");
  const Value update = without_shared(e, c.tensor("update"), strides);
  const Value base = memory_of(e, c.tensor("base"), form);
  const Value flat = reinterpret(e, base, update.element());
  const int64_t n = flat.dim(0);
  const Access a = access_of(e, c);
  const auto put = [&](const Value& target, const Dims& shape, const Dims& start) {
    Value boxed = to_box(e, update, a.grid);
    Value gridded = over_grid(e, target, shape);
    if (a.grid.has_steps()) boxed = in_steps(e, boxed, box(e, gridded, a.grid, start, /*whole=*/true), a.grid);
    Dims with_last = boxed.dims();
    with_last.resize(shape.size(), 1);
    Values starts;
    for (const int64_t s : start) starts.push_back(e.constant(s, Type{ElementType::kS64, {}}));
    Value written = e.dynamic_update_slice(gridded, e.reshape(boxed, with_last), starts);
    Value all = e.reshape(written, {count_of(shape)});
    return all.dim(0) == target.dim(0) ? all : e.slice(all, {0}, {target.dim(0)}, {1});
  };
  Value changed;
  const Dims shape = grid_shape(a.grid, n);
  const Dims start = a.varies || a.grid.off_grid ? Dims{} : start_in(a.grid, shape, a.known);
  // A grid that doesn't end with the memory costs three copies of it, as a diagonal's does. Few elements are written
  // one by one instead.
  constexpr int64_t kFew = 64;
  const bool few = !start.empty() && count_of(shape) != n && update.type.elements() * kFew <= n;
  if (a.grid.off_grid || few) {
    const Dims count{update.type.elements()};
    Value positions = e.reshape(flat_positions(e, update.dims(), strides, a.offset), count);
    changed = scatter_slices(e, flat, 0, positions, e.reshape(update, count), Combine::kReplace);
  } else if (!start.empty()) {
    changed = put(flat, shape, start);
  } else {
    Value part = e.dynamic_slice(flat, {a.offset}, {a.grid.span});
    const Dims inner = grid_shape(a.grid, a.grid.span);
    changed = e.dynamic_update_slice(flat, put(part, inner, Dims(inner.size(), 0)), {a.offset});
  }
  Value back = reinterpret(e, changed, base.element());
  if (back.dim(0) < base.dim(0)) back = e.concatenate({back, e.slice(base, {back.dim(0)}, {base.dim(0)}, {1})}, 0);
  return {from_memory(e, back, form)};
}

Values write_with_kernels(Emit& e, const Call& c) {
  const bool overlaps = grid_of(c.ints("sizes"), c.ints("strides")).off_grid;
  const std::optional<Value> written = overlaps ? std::nullopt : library_write(e, c);
  return written ? Values{*written} : write(e, c);
}

}  // namespace

Value without_shared(Emit& e, Value update, const Dims& strides) {
  for (int64_t d = 0; d < update.rank(); ++d) {
    if (strides[static_cast<size_t>(d)] == 0 && update.dim(d) > 1) update = e.slice_dim(update, d, 0, 1);
  }
  return update;
}

void add_view_rules(RuleTable& rules) {
  rules.add("pjrt::empty", empty);
  rules.add("pjrt::convert", convert);
  rules.add("pjrt::view", view);
  rules.add("pjrt::write", write, {.with_kernels = write_with_kernels});
}

}  // namespace tpjrt::ops
