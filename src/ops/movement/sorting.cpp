// Sorting and order statistics: sort, topk, kthvalue, median, mode.
#include <cmath>
#include <optional>

#include "ops/movement/movement.h"

namespace tpjrt::ops {

namespace {

constexpr ElementType kIndex = ElementType::kS64;

// Returns x[..., position, ...] with dim dropped; the position is a constant.
Value pick(Emit& e, const Value& x, int64_t dim, int64_t position) {
  Dims start(x.dims().size(), 0), limit = x.dims(), strides(x.dims().size(), 1), rest = x.dims();
  start[static_cast<size_t>(dim)] = position;
  limit[static_cast<size_t>(dim)] = position + 1;
  rest.erase(rest.begin() + dim);
  return e.reshape(e.slice(x, start, limit, strides), rest);
}

// Returns x at one position for each slice: positions has x's shape without dim.
Value pick_each(Emit& e, const Value& x, int64_t dim, const Value& positions) {
  return e.reshape(e.gather_along(x, e.unsqueeze(positions, dim), dim), positions.dims());
}

Values reshaped(Emit& e, const Call& c, const Value& values, const Value& indices) {
  const Dims dims = e.type_of(c.result()).dims;
  return {e.reshape(values, dims), e.reshape(indices, dims)};
}

// aten::sort, aten::sort.stable: always stable.
Values sort(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const int64_t dim = c.dim("dim", x.rank());
  if (x.rank() == 0 || x.type.elements() == 0) return {x, e.zeros({kIndex, x.dims()})};
  Sorted sorted = sort_along(e, x, dim, c.boolean("descending"));
  return {sorted.values, sorted.indices};
}

// Returns the k greatest of the last dimension of f32, in order, with the op that sorts only what it must. It orders
// by bits, so NaN, the greatest number to torch, becomes the positive NaN (or with `smallest`, which negates
// everything, the negative one).
Sorted top_k(Emit& e, const Value& x, int64_t k, bool smallest) {
  const Type bits{ElementType::kS32, x.dims()};
  Value nan = e.bitcast_convert(e.constant(smallest ? int64_t{-0x400000} : int64_t{0x7FC00000}, bits), x.type);
  auto [values, indices] = e.top_k(e.select(e.isnan(x), nan, smallest ? e.neg(x) : x), k);
  return {smallest ? e.neg(values) : values, e.convert(indices, kIndex)};
}

// aten::topk: always sorted.
Values topk(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const Type result = e.type_of(c.result());
  const int64_t dim = c.dim("dim", x.rank()), last = x.rank() - 1, k = c.integer("k");
  if (x.rank() == 0) return {x, e.zeros({kIndex, {}})};
  if (result.elements() == 0) return {e.zeros(result), e.zeros({kIndex, result.dims})};
  if (Emit::compute_element(x.element()) == ElementType::kF32) {
    Dims swapped;
    for (int64_t d = 0; d < x.rank(); ++d) swapped.push_back(d == dim ? last : d == last ? dim : d);
    Sorted top = top_k(e, e.transpose(e.convert(x, ElementType::kF32), swapped), k, !c.boolean("largest"));
    return {e.convert(e.transpose(top.values, swapped), x.element()), e.transpose(top.indices, swapped)};
  }
  Sorted sorted = sort_along(e, x, dim, c.boolean("largest"));
  Dims start(x.dims().size(), 0), limit = x.dims(), strides(x.dims().size(), 1);
  limit[static_cast<size_t>(dim)] = k;
  return {e.slice(sorted.values, start, limit, strides), e.slice(sorted.indices, start, limit, strides)};
}

int64_t dimension_to_choose_from(const Call& c, const Value& x) {
  const int64_t dim = c.dim("dim", x.rank());
  if (x.rank() > 0 && x.dim(dim) == 0) throw Mistake("one of no elements is asked for");
  return dim;
}

// Returns results without elements.
Values nothing(Emit& e, const Call& c) { return {e.zeros(e.type_of(c.result(0))), e.zeros(e.type_of(c.result(1)))}; }

// aten::kthvalue: the k-th smallest, counted from 1.
Values kthvalue(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const int64_t dim = dimension_to_choose_from(c, x), k = c.integer("k");
  if (x.rank() == 0) return {x, e.zeros({kIndex, {}})};
  if (x.type.elements() == 0) return nothing(e, c);
  Sorted sorted = sort_along(e, x, dim, false);
  return reshaped(e, c, pick(e, sorted.values, dim, k - 1), pick(e, sorted.indices, dim, k - 1));
}

// Returns the lower median along dim. If there is a NaN it is the result, unless `ignore_nan`.
Sorted median_along(Emit& e, const Value& x, int64_t dim, bool ignore_nan) {
  const int64_t n = x.dim(dim);
  Sorted sorted = sort_along(e, x, dim, false);
  if (!hlo::is_float(x.element())) {
    return {pick(e, sorted.values, dim, (n - 1) / 2), pick(e, sorted.indices, dim, (n - 1) / 2)};
  }
  Value numbers = e.sum(e.convert(e.logical_not(e.isnan(x)), kIndex), {dim});  // numbers that aren't NaN come first
  Value position;
  if (ignore_nan) {
    Value before = e.maximum(e.sub(numbers, e.ones(numbers.type)), e.zeros(numbers.type));
    position = e.div(before, e.constant(2, numbers.type));
  } else {
    Value complete = e.compare(hlo::Comparison::kEq, numbers, e.constant(n, numbers.type));
    position = e.select(complete, e.constant((n - 1) / 2, numbers.type), numbers);
  }
  return {pick_each(e, sorted.values, dim, position), pick_each(e, sorted.indices, dim, position)};
}

Values median_all(Emit& e, const Call& c, bool ignore_nan) {
  Value x = c.tensor("self");
  const int64_t n = x.type.elements();
  if (n == 0) {
    if (!hlo::is_float(x.element())) throw Unsupported("the median of no integers");
    return {e.splat(NAN, {x.element(), {}})};
  }
  return {median_along(e, e.reshape(x, {n}), 0, ignore_nan).values};
}

Values median_dim(Emit& e, const Call& c, bool ignore_nan) {
  Value x = c.tensor("self");
  const int64_t dim = dimension_to_choose_from(c, x);
  if (x.rank() == 0) return {x, e.zeros({kIndex, {}})};
  if (x.type.elements() == 0) return nothing(e, c);
  Sorted found = median_along(e, x, dim, ignore_nan);
  return reshaped(e, c, found.values, found.indices);
}

// aten::median, aten::median.dim, aten::nanmedian, aten::nanmedian.dim
Values median(Emit& e, const Call& c) { return median_all(e, c, false); }
Values nanmedian(Emit& e, const Call& c) { return median_all(e, c, true); }
Values median_of_dim(Emit& e, const Call& c) { return median_dim(e, c, false); }
Values nanmedian_of_dim(Emit& e, const Call& c) { return median_dim(e, c, true); }

// aten::mode: the smallest of the most frequent values, and its last position.
Values mode(Emit& e, const Call& c) {
  Value x = c.tensor("self");
  const int64_t dim = dimension_to_choose_from(c, x);
  if (x.rank() == 0) return {x, e.zeros({kIndex, {}})};
  if (x.type.elements() == 0) return nothing(e, c);
  const int64_t n = x.dim(dim);
  Sorted sorted = sort_along(e, x, dim, false);
  // A run starts where an element differs from the one before it.
  Dims low(x.dims().size(), 0), high = low, interior = low;
  low[static_cast<size_t>(dim)] = 1;
  high[static_cast<size_t>(dim)] = -1;
  Value place = e.iota({kIndex, x.dims()}, dim);
  Value before = e.pad(sorted.values, e.zeros({x.element(), {}}), low, high, interior);
  Value starts = e.compare(hlo::Comparison::kNe, sorted.values, before);
  Value start = e.cumulative(e.select(starts, place, e.zeros(place.type)), dim, "maximum", 0);
  Value length = e.sub(place, start);
  Value longest = e.broadcast_reduced(e.max(length, {dim}), {dim}, x.dims());
  Value first = e.select(e.compare(hlo::Comparison::kEq, length, longest), place, e.constant(n, place.type));
  Value position = e.min(first, {dim});
  return reshaped(e, c, pick_each(e, sorted.values, dim, position), pick_each(e, sorted.indices, dim, position));
}

// Returns integers of at most 32 bits in x's order. For floats these are their bits, with the order of negative ones
// reversed, zeros made equal and NaN made the greatest. Returns nothing for 64-bit types.
std::optional<Value> sort_key(Emit& e, const Value& x) {
  if (hlo::byte_width(x.element()) == 8) return std::nullopt;
  const Type type{ElementType::kS32, x.dims()};
  if (!hlo::is_float(x.element())) {
    if (x.element() == ElementType::kU32) return std::nullopt;
    return e.convert(x, ElementType::kS32);
  }
  Value y = e.convert(x, ElementType::kF32);
  Value bits = e.bitcast_convert(y, type);
  Value flipped = e.binary("xor", bits, e.constant(int64_t{0x7FFFFFFF}, type));
  Value key = e.select(e.compare(hlo::Comparison::kLt, bits, e.zeros(type)), flipped, bits);
  key = e.select(e.compare(hlo::Comparison::kEq, y, e.zeros(y.type)), e.zeros(type), key);
  return e.select(e.isnan(y), e.constant(int64_t{0x7FFFFFFF}, type), key);
}

// Sorts key and position packed into one 64-bit number: several times faster than sorting pairs with a comparison in
// torch's order, and stable by construction.
Sorted sort_packed(Emit& e, const Value& x, const Value& key, int64_t dim, bool descending) {
  const Type wide{kIndex, x.dims()};
  Value high = e.binary("shift_left", e.convert(descending ? e.unary("not", key) : key, kIndex), e.constant(32, wide));
  Value packed = e.binary("or", high, e.iota(wide, dim));
  auto before = [&](const Values& pair) -> Values { return {e.compare(hlo::Comparison::kLt, pair[0], pair[1])}; };
  Value sorted = e.sort({packed}, dim, false, before)[0];
  Value indices = e.binary("and", sorted, e.constant(int64_t{0xFFFFFFFF}, wide));
  return {e.gather_along(x, indices, dim), indices};
}

}  // namespace

Sorted sort_along(Emit& e, const Value& x, int64_t dim, bool descending) {
  if (x.dim(dim) <= INT32_MAX) {
    if (auto key = sort_key(e, x)) return sort_packed(e, x, *key, dim, descending);
  }
  auto before = [&](const Values& arguments) -> Values {
    const Value &a = arguments[0], &b = arguments[1];
    Value ordered = e.compare(descending ? hlo::Comparison::kGt : hlo::Comparison::kLt, a, b);
    if (!hlo::is_float(a.element())) return {ordered};
    Value apart = descending ? e.binary("and", e.isnan(a), e.logical_not(e.isnan(b)))
                             : e.binary("and", e.isnan(b), e.logical_not(e.isnan(a)));
    return {e.binary("or", ordered, apart)};
  };
  Values sorted = e.sort({x, e.iota({kIndex, x.dims()}, dim)}, dim, true, before);
  return {sorted[0], sorted[1]};
}

void add_sorting_rules(RuleTable& rules) {
  rules.add_composite("aten::sort", sort, kByAten, kNotComplex);
  rules.add_composite("aten::sort.stable", sort, kByAten, kNotComplex);
  rules.add_composite("aten::topk", topk, kByAten, kNotComplex);
  rules.add_composite("aten::kthvalue", kthvalue, kByAten, kReals);
  rules.add_composite("aten::median", median, kByAten, kReals);
  rules.add_composite("aten::median.dim", median_of_dim, kByAten, kReals);
  rules.add_composite("aten::nanmedian", nanmedian, kByAten, kReals);
  rules.add_composite("aten::nanmedian.dim", nanmedian_of_dim, kByAten, kReals);
  rules.add_composite("aten::mode", mode, kByAten, kNotComplex);
}

}  // namespace tpjrt::ops
