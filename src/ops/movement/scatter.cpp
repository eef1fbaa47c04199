// Writes along one dimension: scatter and its reductions, index_add, index_copy, index_fill, index_reduce. For
// indices out of range see movement.h.
#include "ops/movement/movement.h"
#include "ops/rule/dims.h"
#include "ops/rule/expression.h"

namespace tpjrt::ops {

namespace {

// Writes updates one element at a time (scatter) or in whole slices (index_*).
using Place = Value (*)(Emit& e, const Value& self, int64_t dim, const Value& index, const Value& updates,
                        Combine combine);

// Returns the corner of src that index covers; src may be larger than index. Either may be 0-d, which counts as one
// element, if self has one dimension. An index without elements may have any shape.
Value corner(Emit& e, const Value& src, const Value& index) {
  if (src.dims() == index.dims()) return src;
  if (index.type.elements() == 0) return e.zeros({src.element(), index.dims()});
  const Dims dims = index.rank() == 0 ? Dims{1} : index.dims();
  const Value whole = src.rank() == 0 ? e.reshape(src, {1}) : src;
  return e.reshape(e.slice(whole, Dims(dims.size(), 0), dims, Dims(dims.size(), 1)), index.dims());
}

// Returns a 1-d index for index_*: a 0-d index counts as one.
Value line(Emit& e, const Value& index) { return e.reshape(index, {index.type.elements()}); }

// Returns index_*'s source with self's rank; a 0-d source is one element.
Value slices(Emit& e, const Value& source, const Value& self, int64_t dim, const Value& index) {
  if (self.rank() == 0) return e.reshape(source, {source.type.elements()});
  Dims dims = self.dims();
  dims[static_cast<size_t>(dim)] = index.type.elements();
  return e.reshape(source, dims);
}

// aten::scatter.src: the last of equal indices wins.
Values scatter_src(Emit& e, const Call& c) {
  Value self = c.tensor("self");
  const int64_t dim = c.dim("dim", self.rank());
  Value index = required_index(e, c, self, dim, false, false);
  Value src = corner(e, c.tensor("src"), index);
  return {scatter_along(e, self, dim, index, src, Combine::kReplace)};
}

// aten::scatter.value
Values scatter_value(Emit& e, const Call& c) {
  Value self = c.tensor("self");
  const int64_t dim = c.dim("dim", self.rank());
  Value index = required_index(e, c, self, dim, false, false);
  Value src = e.broadcast_to(c.scalar(e, "value", self.element()), index.dims());
  return {scatter_along(e, self, dim, index, src, Combine::kReplace)};
}

// aten::scatter_add
Values scatter_add(Emit& e, const Call& c) {
  Value self = c.tensor("self");
  const int64_t dim = c.dim("dim", self.rank());
  Value index = required_index(e, c, self, dim, false, false);
  Value src = corner(e, c.tensor("src"), index);
  return {scatter_along(e, self, dim, index, src, Combine::kAdd)};
}

Combine combine_of(const std::string& reduce) {
  if (reduce == "add" || reduce == "sum" || reduce == "mean") return Combine::kAdd;
  if (reduce == "multiply" || reduce == "prod") return Combine::kMultiply;
  if (reduce == "amax") return Combine::kMaximum;
  if (reduce == "amin") return Combine::kMinimum;
  throw Unsupported("reduce=\"" + reduce + "\"");
}

// aten::scatter.reduce: "add" or "multiply", self included.
Values scatter_reduce_src(Emit& e, const Call& c) {
  Value self = c.tensor("self");
  const int64_t dim = c.dim("dim", self.rank());
  Value index = required_index(e, c, self, dim, false, false);
  Value src = corner(e, c.tensor("src"), index);
  return {scatter_along(e, self, dim, index, src, combine_of(c.string("reduce")))};
}

// aten::scatter.value_reduce
Values scatter_reduce_value(Emit& e, const Call& c) {
  Value self = c.tensor("self");
  const int64_t dim = c.dim("dim", self.rank());
  Value index = required_index(e, c, self, dim, false, false);
  Value src = e.broadcast_to(c.scalar(e, "value", self.element()), index.dims());
  return {scatter_along(e, self, dim, index, src, combine_of(c.string("reduce")))};
}

Value identity_of(Emit& e, Combine combine, ElementType element) {
  switch (combine) {
    case Combine::kMultiply: return e.ones({element, {}});
    case Combine::kMaximum: return e.lowest(element);
    case Combine::kMinimum: return e.highest(element);
    default: return e.zeros({element, {}});
  }
}

// Reduces with include_self. Without it, the elements that updates reach start from the identity. The mean of
// integers rounds down.
Value reduce_into(Emit& e, const Call& c, Place place, const Value& self, int64_t dim, const Value& index,
                  const Value& src) {
  const std::string reduce = c.string("reduce");
  const Combine combine = combine_of(reduce);
  const bool include_self = c.boolean("include_self");
  Value start = e.to(self, Emit::compute_element(self.element()));
  Value updates = e.to(src, start.element());
  if (!include_self) {
    Value identity = e.broadcast_to(identity_of(e, combine, start.element()), updates.dims());
    start = place(e, start, dim, index, identity, Combine::kReplace);
  }
  Value result = place(e, start, dim, index, updates, combine);
  if (reduce == "mean") {
    const ElementType counter = hlo::is_float(start.element()) ? start.element() : ElementType::kS64;
    Value initial = include_self ? e.ones({counter, start.dims()}) : e.zeros({counter, start.dims()});
    Value count = place(e, initial, dim, index, e.ones({counter, updates.dims()}), Combine::kAdd);
    count = e.convert(e.maximum(count, e.ones(count.type)), result.element());
    result = rounded(c, {&e, result}).value;
    Value quotient = e.div(result, count);
    if (hlo::is_signed_integer(result.element())) {
      Value exact = e.compare(hlo::Comparison::kEq, e.mul(quotient, count), result);
      Value negative = e.compare(hlo::Comparison::kLt, result, e.zeros(result.type));
      Value down = e.binary("and", negative, e.logical_not(exact));
      quotient = e.sub(quotient, e.convert(down, result.element()));
    }
    result = quotient;
  }
  return e.to(result, self.element());
}

// aten::scatter_reduce.two: sum, prod, mean, amax, amin.
Values scatter_reduce(Emit& e, const Call& c) {
  Value self = c.tensor("self");
  const int64_t dim = c.dim("dim", self.rank());
  Value index = required_index(e, c, self, dim, false, false);
  Value src = corner(e, c.tensor("src"), index);
  return {reduce_into(e, c, scatter_along, self, dim, index, src)};
}

// aten::index_reduce: prod, mean, amax, amin.
Values index_reduce(Emit& e, const Call& c) {
  Value self = c.tensor("self");
  const int64_t dim = c.dim("dim", self.rank());
  Value index = line(e, c.tensor("index"));
  e.require(index, 0, self.rank() == 0 ? 1 : self.dim(dim), "index out of range in self: {}");
  return {reduce_into(e, c, scatter_slices, self, dim, index, slices(e, c.tensor("source"), self, dim, index))};
}

// aten::index_add: self + alpha * source at the indices. The Meta kernel accepts sources of other shapes.
Values index_add(Emit& e, const Call& c) {
  Value self = c.tensor("self");
  const int64_t dim = c.dim("dim", self.rank());
  // The CPU has a separate kernel for one dimension, with its own error.
  const bool is_line = self.rank() <= 1;
  Value index = line(e, required_index(e, c, self, dim, false, /*index_error=*/is_line,
                                       is_line ? "index out of range in self: {}" : ""));
  Dims whole = c.tensor("source").dims(), expected = self.dims();
  if (!whole.empty() && !expected.empty()) {
    if (whole.size() == expected.size()) whole[static_cast<size_t>(dim)] = expected[static_cast<size_t>(dim)];
    if (whole != expected) throw Mistake("source has another shape than self");
  }
  Value source = slices(e, c.tensor("source"), self, dim, index);
  Value alpha = e.broadcast_to(c.scalar(e, "alpha", self.element()), source.dims());
  Value updates = self.element() == ElementType::kPred ? e.binary("and", source, alpha) : e.mul(source, alpha);
  return {scatter_slices(e, self, dim, index, updates, Combine::kAdd)};
}

// aten::index_copy
Values index_copy(Emit& e, const Call& c) {
  Value self = c.tensor("self");
  const int64_t dim = c.dim("dim", self.rank());
  Value index = line(e, required_index(e, c, self, dim, false, true));
  Value source = slices(e, c.tensor("source"), self, dim, index);
  return {scatter_slices(e, self, dim, index, source, Combine::kReplace)};
}

// The indices only mark positions along dim, so one select writes all slices.
Value filled(Emit& e, const Call& c, const Value& self, const Value& value) {
  if (self.type.elements() == 0) return self;
  const int64_t dim = c.dim("dim", self.rank());
  const int64_t size = self.rank() == 0 ? 1 : self.dim(dim);
  Value index = line(e, required_index(e, c, self, dim, true, true));
  index = wrap_index(e, index, size, index_element({size}));
  Value none = e.zeros({ElementType::kPred, {size}});
  Value marked = scatter_slices(e, none, 0, index, e.ones({ElementType::kPred, index.dims()}), Combine::kReplace);
  Value mask = self.rank() == 0 ? e.reshape(marked, {}) : e.broadcast_in_dim(marked, self.dims(), {dim});
  return e.select(mask, e.broadcast_to(value, self.dims()), self);
}

// aten::index_fill.int_Scalar
Values index_fill_scalar(Emit& e, const Call& c) {
  Value self = c.tensor("self");
  return {filled(e, c, self, c.scalar(e, "value", self.element()))};
}

// aten::index_fill.int_Tensor: value is 0-d.
Values index_fill_tensor(Emit& e, const Call& c) {
  Value self = c.tensor("self");
  return {filled(e, c, self, e.to(c.tensor("value"), self.element()))};
}

}  // namespace

void add_scatter_rules(RuleTable& rules) {
  rules.add_composite("aten::scatter.src", scatter_src);
  rules.add("aten::scatter.value", scatter_value);
  rules.add("aten::scatter.reduce", scatter_reduce_src);
  rules.add("aten::scatter.value_reduce", scatter_reduce_value);
  rules.add_composite("aten::scatter_add", scatter_add, kWrittenByAten);
  rules.add_composite("aten::scatter_reduce.two", scatter_reduce);
  rules.add("aten::index_reduce", index_reduce, kReals);
  rules.add_composite("aten::index_add", index_add, kWrittenByAten);
  rules.add("aten::index_copy", index_copy, kWrittenByAten);
  rules.add("aten::index_fill.int_Scalar", index_fill_scalar);
  rules.add("aten::index_fill.int_Tensor", index_fill_tensor);
}

}  // namespace tpjrt::ops
