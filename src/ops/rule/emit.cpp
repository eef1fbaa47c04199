// torch's meanings on top of the builder: conversion, broadcasting, sums; indexing idioms.
#include "ops/rule/emit.h"

#include <c10/util/Float8_e4m3fn.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/rule/dims.h"

namespace tpjrt::ops {

using hlo::Comparison;

Type Emit::type_of(const graph::TensorType& type) const {
  return {element_of(type.dtype), Dims(type.sizes.begin(), type.sizes.end())};
}

// --- broadcasting and conversion ------------------------------------------------------------------------------------

Value Emit::broadcast_to(const Value& x, const Dims& dims) {
  if (x.dims() == dims) return x;
  const int64_t offset = static_cast<int64_t>(dims.size()) - x.rank();
  if (offset < 0) {
    throw hlo::Error("[broadcast_to] " + hlo::to_string(x.type) + " has more dimensions than its target");
  }
  Dims positions = range(0, x.rank());
  for (int64_t& p : positions) p += offset;
  return broadcast_in_dim(x, dims, positions);
}

Value Emit::splat(double value, const Type& like) { return constant(value, like); }

Value Emit::zeros(const Type& type) { return constant(0, type); }

Value Emit::ones(const Type& type) { return constant(1, type); }

Value Emit::as(const Value& x, const graph::TensorType& result) {
  const Type type = type_of(result);
  return broadcast_to(to(x, type.element), type.dims);
}

Value Emit::to(const Value& x, ElementType element) {
  if (x.element() == element) return x;
  if (element == ElementType::kPred) return compare(Comparison::kNe, x, zeros(x.type));
  Value source = x;
  if (hlo::is_complex(source.element()) && !hlo::is_complex(element)) {
    source = unary("real", source);
    if (source.element() == element) return source;
  }
  // A float outside the range of a narrow integer wraps in torch, as in C on most machines; convert would saturate.
  if (hlo::is_float(source.element()) && hlo::is_integer(element) && hlo::byte_width(element) < 4) {
    source = convert(source, ElementType::kS32);
  }
  return convert(source, element);
}

ElementType Emit::compute_element(ElementType element) {
  return hlo::is_float(element) && hlo::byte_width(element) < 4 ? ElementType::kF32 : element;
}

Value Emit::dynamic_update_slice(const Value& x, const Value& update, const Values& starts) {
  if (!writes_apart_ || starts.empty()) return Builder::dynamic_update_slice(x, update, starts);
  // Both as large as x, written into memory of their own.
  const auto placed = [&](const Value& part) {
    return Builder::dynamic_update_slice(zeros({part.element(), x.dims()}), part, starts);
  };
  return select(placed(ones({ElementType::kPred, update.dims()})), placed(update), x);
}

Value Emit::unsqueeze(const Value& x, int64_t dim) {
  Dims dims = x.dims();
  dims.insert(dims.begin() + dim, 1);
  return reshape(x, dims);
}

Value Emit::computed_once(const Value& x) {
  if (!for_cpu_ || x.rank() == 0 || x.type.elements() == 0) return x;
  const Dims zero(x.dims().size(), 0), one(x.dims().size(), 1);
  const Value first = reshape(slice(x, zero, one, one), {});
  const bool is_bool = x.element() == ElementType::kPred;
  const Value usual = is_bool ? first : compare(hlo::Comparison::kNe, first, constant(-77, first.type));
  // Both ways give x, of which XLA knows nothing.
  auto otherwise = [&](const Values&) {
    return Values{binary(is_bool ? "or" : "subtract", x, broadcast_in_dim(to(usual, x.element()), x.dims(), {}))};
  };
  return if_else(usual, [&](const Values&) { return Values{x}; }, otherwise)[0];
}

Value Emit::cut(const Value& x, int64_t dim, int64_t begin, int64_t end) {
  if (begin == 0 && end == x.dim(dim)) return x;
  Dims start(x.dims().size(), 0), limit = x.dims();
  start[static_cast<size_t>(dim)] = begin;
  limit[static_cast<size_t>(dim)] = end;
  return slice(x, start, limit, Dims(x.dims().size(), 1));
}

Value Emit::dot_general(const Value& lhs, const Value& rhs, const hlo::DotDimensions& d, ElementType result,
                        std::string_view precision) {
  if (!for_cpu_ || lhs.element() != ElementType::kBF16) return Builder::dot_general(lhs, rhs, d, result, precision);
  // x without its batch dimensions of 1, and the numbers that others have then.
  auto reduced = [this](const Value& x, Dims batch, Dims& kept, Dims& contracting) {
    std::erase_if(batch, [&](int64_t b) { return x.dim(b) != 1; });
    const auto is_out = [&](int64_t i) { return std::find(batch.begin(), batch.end(), i) != batch.end(); };
    std::erase_if(kept, is_out);
    Dims dims;
    for (int64_t i = 0; i < x.rank(); ++i) {
      if (!is_out(i)) dims.push_back(x.dim(i));
    }
    for (Dims* numbers : {&kept, &contracting}) {
      for (int64_t& i : *numbers) i -= std::count_if(batch.begin(), batch.end(), [i](int64_t b) { return b < i; });
    }
    return reshape(x, dims);
  };
  hlo::DotDimensions n = d;
  const Value a = reduced(lhs, d.lhs_batch, n.lhs_batch, n.lhs_contracting);
  const Value b = reduced(rhs, d.rhs_batch, n.rhs_batch, n.rhs_contracting);
  const bool is_the_librarys = a.rank() > 1 && n.lhs_contracting == Dims{a.rank() - 1};
  const Value left = is_the_librarys ? optimization_barrier({a})[0] : a;
  const Value product = Builder::dot_general(left, b, n, result, precision);
  Dims dims = product.dims();
  for (size_t i = 0; i < d.lhs_batch.size(); ++i) {
    if (lhs.dim(d.lhs_batch[i]) == 1) dims.insert(dims.begin() + static_cast<int64_t>(i), 1);
  }
  return reshape(product, dims);
}

Value Emit::convert(const Value& x, ElementType element) {
  // What is too large for float8_e4m3fn is NaN to XLA, and to torch before 2.13; since then the largest number.
  static const bool saturates = !std::isnan(static_cast<float>(c10::Float8_e4m3fn(1e9F)));
  // XLA makes a choice between y and 0 of a product of y with a predicate that was converted, and so loses y's NaN.
  if (x.element() == ElementType::kPred && !hlo::is_integer(element) && element != ElementType::kPred)
    return Builder::convert(Builder::convert(x, ElementType::kS32), element);
  const bool integer = hlo::is_integer(x.element());
  if (element != ElementType::kF8E4M3FN || x.element() == element || !saturates ||
      !(hlo::is_float(x.element()) || integer))
    return Builder::convert(x, element);
  const Type wide{integer ? ElementType::kF32 : compute_element(x.element()), {}};
  Value limited = clamp(constant(-448.0, wide), Builder::convert(x, wide.element), constant(448.0, wide));
  return Builder::convert(limited, element);
}

Value Emit::pad_dim(const Value& x, int64_t dim, int64_t low, int64_t high, int64_t interior) {
  if (low == 0 && high == 0 && interior == 0) return x;
  Dims lows(x.dims().size(), 0), highs = lows, interiors = lows;
  lows[static_cast<size_t>(dim)] = low;
  highs[static_cast<size_t>(dim)] = high;
  interiors[static_cast<size_t>(dim)] = interior;
  return pad(x, zeros({x.element(), {}}), lows, highs, interiors);
}

Value Emit::broadcast_reduced(const Value& reduced, const Dims& reduced_dims, const Dims& dims) {
  Dims kept;
  for (int64_t d : range(0, static_cast<int64_t>(dims.size()))) {
    if (std::find(reduced_dims.begin(), reduced_dims.end(), d) == reduced_dims.end()) kept.push_back(d);
  }
  return broadcast_in_dim(reduced, dims, kept);
}

// --- arithmetic -----------------------------------------------------------------------------------------------------

Value Emit::isnan(const Value& a) {
  if (!hlo::is_float(a.element()) && !hlo::is_complex(a.element())) return constant(0, {ElementType::kPred, a.dims()});
  return compare(Comparison::kNe, a, a);
}

namespace {

// The extreme value of `element`, 0-d. High: the largest.
Value extreme(Emit& e, ElementType element, bool high) {
  const Type type{element, {}};
  if (element == ElementType::kPred) return e.constant(high ? 1 : 0, type);
  if (hlo::is_complex(element)) throw Unsupported("complex numbers have no order");
  if (element == ElementType::kF8E4M3FN || element == ElementType::kF8E4M3FNUZ || element == ElementType::kF8E5M2FNUZ) {
    // These have no infinity.
    double largest = element == ElementType::kF8E4M3FN ? 448 : element == ElementType::kF8E4M3FNUZ ? 240 : 57344;
    return e.constant(high ? largest : -largest, type);
  }
  if (hlo::is_float(element)) {
    double infinity = std::numeric_limits<double>::infinity();
    return e.constant(high ? infinity : -infinity, type);
  }
  const int64_t bits = 8 * hlo::byte_width(element);
  if (hlo::is_unsigned_integer(element)) return e.constant_u64(high ? ~uint64_t{0} >> (64 - bits) : 0, type);
  int64_t largest = std::numeric_limits<int64_t>::max() >> (64 - bits);
  return e.constant(high ? largest : -largest - 1, type);
}

}  // namespace

Value Emit::rounded_below(const Value& x, const Value& max) { return is_for_cpu() ? minimum(x, max) : x; }

Value Emit::lowest(ElementType element) { return extreme(*this, element, false); }

Value Emit::highest(ElementType element) { return extreme(*this, element, true); }

// --- reductions -----------------------------------------------------------------------------------------------------

namespace {

// XLA:CPU adds floats that lie one after the other into one vector, in which each addition waits for the last: a million in
// 0.4 ms. Elementwise sums of eight parts come first, which don't wait: 0.15 ms, and more accurate. Rows alone gain less than
// a softmax of them loses, whose exponentials would be in the loop eight times.
constexpr int kFoldings = 3;
constexpr int64_t kLeastFolded = 1024;

Value folded(Emit& e, Value x, const Dims& dims) {
  int64_t summed = 1;
  for (int64_t d : dims) summed *= x.dim(d);
  const bool consecutive = std::find(dims.begin(), dims.end(), x.rank() - 1) != dims.end();
  if (!e.is_for_cpu() || !hlo::is_float(x.element())) return x;
  if (dims.size() < 2 || !consecutive || summed < kLeastFolded) return x;
  int foldings = 0;
  for (int64_t d : dims) {
    for (; foldings < kFoldings && x.dim(d) % 2 == 0; ++foldings) {
      const int64_t half = x.dim(d) / 2;
      x = e.add(e.cut(x, d, 0, half), e.cut(x, d, half, 2 * half));
    }
  }
  return x;
}

}  // namespace

Value Emit::sum(const Value& x, const Dims& dims) {
  if (dims.empty()) return x;
  return upcast(x,
                [&](const Value& y) { return reduce("add", folded(*this, y, dims), zeros({y.element(), {}}), dims); });
}

Value Emit::mean(const Value& x, const Dims& dims) {
  int64_t count = 1;
  for (int64_t d : dims) count *= x.dim(d);
  return upcast(x, [&](const Value& y) {
    Value total = sum(y, dims);
    return div(total, splat(static_cast<double>(count), total.type));
  });
}

namespace {

// XLA:CPU takes the extreme of floats along the last dimension one after the other, for the sake of NaN: 2.8 ms for a
// million, twenty times what a sum takes. Elementwise extremes of halves are vectorized: 0.14 ms. An odd number's halves
// overlap, which changes no extreme.
constexpr int kHalvings = 6;
constexpr int64_t kLeastHalved = 9;

Value halved(Emit& e, std::string_view op, Value x) {
  const int64_t last = x.rank() - 1;
  for (int i = 0; i < kHalvings && x.dim(last) >= kLeastHalved; ++i) {
    const int64_t n = x.dim(last), half = (n + 1) / 2;
    x = e.binary(op, e.cut(x, last, 0, half), e.cut(x, last, n - half, n));
  }
  return x;
}

Value extreme_of(Emit& e, std::string_view op, const Value& x, const Value& identity, const Dims& dims) {
  if (dims.empty()) return x;
  const auto kept = static_cast<size_t>(x.rank()) - dims.size();
  const bool last = std::all_of(dims.begin(), dims.end(), [&](int64_t d) { return d >= static_cast<int64_t>(kept); });
  if (!e.is_for_cpu() || !hlo::is_float(x.element()) || !last) return e.reduce(op, x, identity, dims);
  const auto end_of_kept = x.dims().begin() + static_cast<int64_t>(kept);
  Dims rows(x.dims().begin(), end_of_kept);
  rows.push_back(count_of({end_of_kept, x.dims().end()}));
  return e.reduce(op, halved(e, op, e.reshape(x, rows)), identity, {static_cast<int64_t>(kept)});
}

}  // namespace

Value Emit::max(const Value& x, const Dims& dims) { return extreme_of(*this, "maximum", x, lowest(x.element()), dims); }
Value Emit::min(const Value& x, const Dims& dims) {
  return extreme_of(*this, "minimum", x, highest(x.element()), dims);
}

Value Emit::cumulative(const Value& x, int64_t dim, std::string_view op, double initial) {
  if (x.rank() == 0 || x.dim(dim) <= 1 || x.type.elements() == 0) return x;
  Value identity = std::isinf(initial) ? (initial < 0 ? lowest(x.element()) : highest(x.element()))
                                       : constant(initial, {x.element(), {}});
  // A window that ends at each element and begins before the first.
  const Dims ones(x.dims().size(), 1);
  hlo::Window window{ones, ones, ones, ones, {}};
  window.padding.resize(ones.size());
  window.dimensions[static_cast<size_t>(dim)] = x.dim(dim);
  window.padding[static_cast<size_t>(dim)] = {x.dim(dim) - 1, 0};
  auto body = [&](const Values& pair) -> Values { return {binary(op, pair[0], pair[1])}; };
  return reduce_window({x}, {identity}, window, body)[0];
}

// --- indexing -------------------------------------------------------------------------------------------------------

Value Emit::take(const Value& x, const Value& indices, int64_t dim) {
  if (x.rank() == 0) return broadcast_to(x, indices.dims());
  if (x.dim(dim) == 0 && indices.type.elements() > 0) throw Mistake("an index into a dimension of size 0");
  hlo::GatherDimensions d;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != dim) d.offset_dims.push_back(i);
  }
  d.collapsed_slice_dims = {dim};
  d.start_index_map = {dim};
  d.index_vector_dim = indices.rank();
  Dims sizes = x.dims();
  sizes[static_cast<size_t>(dim)] = std::min<int64_t>(1, x.dim(dim));
  if (x.dim(dim) == 0 || indices.type.elements() == 0) {
    Dims dims = x.dims();
    dims[static_cast<size_t>(dim)] = indices.dim(0);
    return zeros({x.element(), dims});
  }
  return gather(x, indices, d, sizes);
}

Value Emit::gather_along(const Value& x, const Value& indices, int64_t dim) {
  if (x.rank() == 0 || indices.rank() == 0) return reshape(x, indices.dims());
  if (indices.type.elements() == 0) return zeros({x.element(), indices.dims()});
  if (x.dim(dim) == 0) throw Mistake("an index into a dimension of size 0");
  // Every other dimension is a batch dimension; indices may cover only the beginning of it.
  Dims limit = indices.dims();
  limit[static_cast<size_t>(dim)] = x.dim(dim);
  Value covered = slice(x, Dims(limit.size(), 0), limit, Dims(limit.size(), 1));
  hlo::GatherDimensions d;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != dim) d.operand_batching_dims.push_back(i);
  }
  d.start_indices_batching_dims = d.operand_batching_dims;
  d.collapsed_slice_dims = {dim};
  d.start_index_map = {dim};
  d.index_vector_dim = indices.rank();
  return gather(covered, indices, d, Dims(limit.size(), 1));
}

// --- requirements ---------------------------------------------------------------------------------------------------

void Emit::require(const Value& integers, int64_t low, int64_t high, std::string message, bool index_error) {
  if (!requires_ || integers.type.elements() == 0) return;
  const Type word{ElementType::kS64, {}};
  Value x = convert(integers, word.element);
  Dims all;
  for (int64_t d = 0; d < x.rank(); ++d) all.push_back(d);
  requirements_.push_back(
      {reshape(min(x, all), {}), reshape(max(x, all), {}), low, high, std::move(message), index_error});
}

void Emit::require_all(const Value& predicates, std::string message) {
  if (!requires_) return;
  Dims all;
  for (int64_t d = 0; d < predicates.rank(); ++d) all.push_back(d);
  const Value holds = convert(predicates, ElementType::kS32);
  require(reduce("minimum", holds, ones({holds.element(), {}}), all), 1, 2, std::move(message), /*index_error=*/false);
}

std::vector<Requirement> Emit::requiring(const std::function<void()>& emit) {
  std::vector<Requirement> before = std::exchange(requirements_, {});
  emit();
  return std::exchange(requirements_, std::move(before));
}

void Emit::require_index(const Value& index, int64_t dim, int64_t size, bool wraps, bool index_error) {
  require(index, wraps ? -size : 0, size,
          "index {} is out of bounds for dimension " + std::to_string(dim) + " with size " + std::to_string(size),
          index_error);
}

}  // namespace tpjrt::ops
