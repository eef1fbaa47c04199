// Sorting numbers into ordered bins: bucketize, searchsorted, histc.
#include <cmath>
#include <functional>
#include <limits>

#include "ops/movement/movement.h"
#include "ops/reduction/reduction.h"

namespace tpjrt::ops {

namespace {

// Above this many boundaries, reading them one after another is cheaper than comparing with all of them.
constexpr int64_t kCompareAll = 32;

// Repeats the CPU's bisection of [0, n) exactly, because it decides the result where a sequence has NaN or isn't
// sorted. `passed(middle)` returns whether the answer is above `middle`; only values below n count. The state is one
// number, because XLA:CPU computes twice what two numbers are made from: twice the beginning of an interval of
// `longest` elements, plus 1 if it has one less.
Value bisect(Emit& e, const Type& type, int64_t n, const std::function<Value(const Value& middle)>& passed) {
  const auto number = [&](int64_t value) { return e.constant(value, type); };
  Value left = e.zeros(type);
  for (int64_t longest = n; longest > 0; longest /= 2) {
    const int64_t half = longest / 2;
    Value begin = e.binary("shift_right_logical", left, number(1)), is_less = e.binary("and", left, number(1));
    if (longest % 2 == 0) {
      Value middle = e.add(begin, e.sub(number(half), is_less));
      Value above = e.add(e.mul(e.add(middle, number(1)), number(2)), number(1));
      left = e.select(passed(middle), above, left);
    } else {
      Value above = e.add(left, number(2 * half + 2)), below = e.sub(left, is_less),
            goes = passed(e.add(begin, number(half)));
      if (longest == 1) goes = e.binary("and", goes, e.compare(hlo::Comparison::kEq, is_less, number(0)));
      left = e.select(goes, above, below);
    }
  }
  return e.binary("shift_right_logical", left, number(1));
}

}  // namespace

Value search(Emit& e, const Value& sequence, const Value& values, bool right) {
  const int64_t n = sequence.dims().back();
  const hlo::Comparison stops = right ? hlo::Comparison::kGt : hlo::Comparison::kGe;
  Value flat = values, rows = sequence;
  if (sequence.rank() == 1) {
    flat = e.reshape(values, {1, values.type.elements()});
    rows = e.reshape(sequence, {1, n});
  } else {
    const int64_t last = values.dims().back();
    const int64_t count = last == 0 ? 0 : values.type.elements() / last;
    flat = e.reshape(values, {count, last});
    rows = e.reshape(sequence, {count, n});
  }
  const int64_t batch = flat.dim(0), width = flat.dim(1);
  Value gap;
  if (n <= kCompareAll) {  // one bit for each element that is passed
    const Dims all{batch, width, n};
    const Type words{ElementType::kU32, {batch, width}}, bits{ElementType::kU32, all};
    Value passed =
        e.logical_not(e.compare(stops, e.broadcast_in_dim(rows, all, {0, 2}), e.broadcast_in_dim(flat, all, {0, 1})));
    Value bit = e.binary("shift_left", e.convert(passed, ElementType::kU32), e.iota(bits, 2));
    Value word = e.sum(bit, {2}), one = e.ones(words);
    gap = bisect(e, words, n, [&](const Value& middle) {
      Value shifted = e.binary("shift_right_logical", word, middle);
      return e.compare(hlo::Comparison::kEq, e.binary("and", shifted, one), one);
    });
  } else {
    const bool fits = n < std::numeric_limits<int32_t>::max() / 2 - 1;
    const Type type{fits ? ElementType::kS32 : ElementType::kS64, {batch, width}};
    gap = bisect(e, type, n, [&](const Value& middle) {
      return e.logical_not(e.compare(stops, e.gather_along(rows, middle, 1), flat));
    });
  }
  return e.reshape(gap, values.dims());
}

namespace {

Values search_result(Emit& e, const Call& c, const Value& sequence, const Value& values, bool right) {
  if (sequence.element() == ElementType::kPred) throw Mistake("a sequence of bools");
  const Type result = e.type_of(c.result());
  if (result.elements() == 0 || sequence.type.elements() == 0) return {e.zeros(result)};
  c10::ScalarType common = c10::promoteTypes(dtype_of(sequence.element()), dtype_of(values.element()));
  Value gap = search(e, e.to(sequence, element_of(common)), e.to(values, element_of(common)), right);
  return {e.convert(e.reshape(gap, result.dims), result.element)};
}

// Returns the argument "self". A Scalar gets the sequence's dtype, but a float keeps its fraction.
Value sought(Emit& e, const Call& c, ElementType sequence) {
  const Argument& self = c.argument("self");
  if (self.kind == Argument::Kind::kTensor) return c.tensor("self");
  const bool fraction = self.scalars.at(0).isFloatingPoint() && !hlo::is_float(sequence);
  return c.scalar(e, "self", fraction ? ElementType::kF32 : sequence);
}

// aten::bucketize.Tensor, aten::bucketize.Scalar
Values bucketize(Emit& e, const Call& c) {
  Value boundaries = c.tensor("boundaries");
  if (boundaries.rank() != 1) throw Mistake("the boundaries don't have one dimension");
  return search_result(e, c, boundaries, sought(e, c, boundaries.element()), c.boolean("right"));
}

// aten::searchsorted.Tensor, aten::searchsorted.Scalar: `sorter` is the order in which the sequence is sorted.
Values searchsorted(Emit& e, const Call& c) {
  Value sequence = c.tensor("sorted_sequence");
  const std::string side = c.string("side");
  if (!side.empty() && side != "left" && side != "right") throw Mistake("the side is neither left nor right");
  if (side == "left" && c.boolean("right")) throw Mistake("the sides are opposites");
  if (auto sorter = c.optional_tensor("sorter")) {
    e.require(*sorter, 0, sequence.dims().back(), "torch.searchsorted(): sorter index out of range",
              /*index_error=*/false);
    sequence = e.gather_along(sequence, *sorter, sequence.rank() - 1);
  }
  const Value values = sought(e, c, sequence.element());
  if (sequence.rank() != 1) {
    Dims rows = sequence.dims(), sought_rows = values.dims();
    rows.back() = sought_rows.back() = 0;
    if (rows != sought_rows) throw Mistake("the values have other dimensions before the last than the sequence");
  }
  return search_result(e, c, sequence, values, c.boolean("right") || side == "right");
}

// Returns the ends of a histogram: min and max, or if these are equal the least and the greatest element, moved apart
// by one on each side if they are equal too.
std::pair<Value, Value> histogram_ends(Emit& e, const Call& c, const Value& x) {
  const double min = c.constant_scalar("min").toDouble(), max = c.constant_scalar("max").toDouble();
  const Type type{x.element(), {}};
  if (!std::isfinite(min) || !std::isfinite(max)) throw Mistake("torch.histc: range of the bins is not finite");
  if (min > max) throw Mistake("torch.histc: max must be larger than min");
  if (min != max) return {e.splat(min, type), e.splat(max, type)};
  Value low = e.reshape(e.min(x, {0}), {}), high = e.reshape(e.max(x, {0}), {});
  if (hlo::is_float(x.element())) {
    e.require_all(e.binary("and", e.unary("is_finite", low), e.unary("is_finite", high)),
                  "torch.histc: the range of the elements is not finite");
  }
  Value margin = e.convert(e.compare(hlo::Comparison::kEq, low, high), x.element());
  return {e.sub(low, margin), e.add(high, margin)};
}

// aten::histc: bins of one width from min to max, which is in the last one; numbers outside are ignored. Integers,
// which CUDA counts too, divide without rounding.
Values histc(Emit& e, const Call& c) {
  const Type result = e.type_of(c.result());
  const int64_t n = c.tensor("self").type.elements(), bins = result.dims[0];
  if (n == 0) return {e.zeros(result)};
  const bool integral = hlo::is_integer(result.element);
  Value x = e.reshape(c.tensor("self"), {n});
  x = e.convert(x, integral ? ElementType::kS64 : Emit::compute_element(result.element));
  const auto [low, high] = histogram_ends(e, c, x);
  const auto all = [&](const Value& value) { return e.broadcast_to(value, x.dims()); };
  Value along = e.sub(x, all(low)), span = all(e.sub(high, low)), count = e.splat(static_cast<double>(bins), x.type);
  Value position = integral ? e.div(e.mul(along, count), span) : e.mul(e.div(along, span), count);
  const Type index{ElementType::kS64, {n}};
  Value bin = e.minimum(e.convert(position, index.element), e.constant(bins - 1, index));
  Value inside = e.binary("and", e.compare(hlo::Comparison::kGe, x, all(low)),
                          e.compare(hlo::Comparison::kLe, x, all(high)));  // false for NaN
  bin = e.select(inside, bin, e.constant(bins, index));                    // out of range, so the write is dropped
  const Type counts{integral ? ElementType::kS64 : result.element, {bins}};
  Value ones = e.ones({counts.element, {n}});
  return {e.convert(scatter_slices(e, e.zeros(counts), 0, bin, ones, Combine::kAdd), result.element)};
}

}  // namespace

void add_binning_rules(RuleTable& rules) {
  rules.add_composite("aten::bucketize.Tensor", bucketize);
  rules.add_composite("aten::bucketize.Scalar", bucketize);
  rules.add_composite("aten::searchsorted.Tensor", searchsorted);
  rules.add_composite("aten::searchsorted.Scalar", searchsorted);
  rules.add_composite("aten::histc", histc);
}

}  // namespace tpjrt::ops
