// Reading and writing by index tensors and masks: index, index_put, index_select, gather, take, masked_fill. Writes
// like torch.scatter and index_add are in scatter.cpp. For indices out of range see movement.h.
#include <algorithm>

#include "ops/movement/movement.h"
#include "ops/rule/by_aten.h"
#include "ops/rule/expression.h"

namespace tpjrt::ops {

void add_scatter_rules(RuleTable& rules);  // scatter.cpp

namespace {

bool is_mask(const Value& index) {
  return index.element() == ElementType::kPred || index.element() == ElementType::kU8;
}

// Returns torch's broadcast of several shapes.
Dims broadcast_shape(const Values& xs) {
  Dims shape;
  for (const Value& x : xs) {
    if (x.dims().size() > shape.size()) shape.insert(shape.begin(), x.dims().size() - shape.size(), 1);
    for (size_t i = 0; i < x.dims().size(); ++i) {
      int64_t& size = shape[shape.size() - 1 - i];
      if (size == 1) size = x.dims()[x.dims().size() - 1 - i];
    }
  }
  return shape;
}

// Returns the optional index tensors, broadcast and wrapped. The _unsafe_ ops promise that indices are in range.
TupleIndex tuple_index(Emit& e, const Call& c, const Dims& self) {
  const Values list = c.tensors("indices");
  const bool safe = c.name.find("_unsafe_") == c.name.npos;
  TupleIndex index;
  Values given;
  for (size_t d = 0; d < list.size(); ++d) {
    if (!list[d]) continue;
    if (is_mask(list[d])) throw Unsupported("an index by a mask, whose result's size depends on the data");
    if (!hlo::is_integer(list[d].element())) throw Mistake("an index that is no integer");
    if (d >= self.size()) throw Mistake("more indices than dimensions");
    index.indexed.push_back(static_cast<int64_t>(d));
    given.push_back(list[d]);
  }
  index.shape = broadcast_shape(given);
  // A result without elements looks nothing up, so no index is checked.
  const bool looks_up = Type{ElementType::kS64, tuple_result_dims(index, self)}.elements() > 0;
  const ElementType element = index_element(self);
  for (size_t i = 0; i < given.size(); ++i) {
    const int64_t dim = index.indexed[i], size = self[static_cast<size_t>(dim)];
    if (size == 0 && given[i].type.elements() > 0) throw Mistake("an index into a dimension of size 0");
    if (safe && looks_up) e.require_index(given[i], static_cast<int64_t>(i), size, true);  // numbered as on the CPU
    Value wrapped = wrap_index(e, given[i], size, element);
    index.indices.push_back(e.broadcast_to(wrapped, index.shape));
  }
  if (!given.empty() && index.indexed.back() - index.indexed.front() + 1 == static_cast<int64_t>(given.size())) {
    index.position = index.indexed.front();
  }
  return index;
}

// aten::index.Tensor
Values index(Emit& e, const Call& c) {
  Value self = c.tensor("self");
  TupleIndex index = tuple_index(e, c, self.dims());
  if (index.indices.empty()) return {self};
  if (self.type.elements() == 0) return {e.zeros(e.type_of(c.result()))};
  return {gather_tuple(e, self, index)};
}

std::string shape_text(const Dims& dims) {
  std::string text = "[";
  for (const int64_t size : dims) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// index_put with one mask (of any rank, after any number of full dimensions): the values go to the true elements in
// order.
Value put_masked(Emit& e, const Value& self, int64_t first, const Value& mask, const Value& values, bool accumulate) {
  const int64_t mask_rank = mask.rank(), rest = self.rank() - first - mask_rank;
  const int64_t at = values.rank() - 1 - rest;  // the dimension of `values` that runs over true elements
  // Both sides are flattened to [before, masked, after].
  Dims flat = self.dims();
  flat.erase(flat.begin() + first, flat.begin() + first + mask_rank);
  flat.insert(flat.begin() + first, mask.type.elements());
  Value hit = e.reshape(e.to(mask, ElementType::kPred), {mask.type.elements()});
  Value spread = values;
  if (at >= 0 && values.dim(at) != 1) {
    const int64_t count = values.dim(at);
    Value before = e.cumulative(e.convert(hit, ElementType::kS32), 0, "add", 0);
    e.require(e.slice(before, {before.dim(0) - 1}, {before.dim(0)}, {1}), count, count + 1,
              "shape mismatch: value tensor of shape " + shape_text(values.dims()) +
                  " cannot be broadcast to indexing result of shape [{}" +
                  (rest > 0 ? ", " + shape_text(Dims(self.dims().end() - rest, self.dims().end())).substr(1) : "]"),
              /*index_error=*/false);
    if (count == 0) return self;
    Value order = e.sub(before, e.ones(before.type));
    spread = e.take(
        values,
        e.clamp(e.zeros({ElementType::kS32, {}}), order, e.constant(values.dim(at) - 1, Type{ElementType::kS32, {}})),
        at);
  }
  spread = e.broadcast_to(spread, flat);
  Value old = e.reshape(self, flat);
  Value updated =
      accumulate ? e.upcast(old, [&](const Value& x) { return e.add(x, e.convert(spread, x.element())); }) : spread;
  return e.reshape(e.select(e.broadcast_in_dim(hit, flat, {first}), updated, old), self.dims());
}

// Returns whether the mask is as large as the dimensions of self from the given one on.
bool covers(const Value& mask, const Value& self, int64_t first) {
  if (first + mask.rank() > self.rank()) return false;
  return std::equal(mask.dims().begin(), mask.dims().end(), self.dims().begin() + first);
}

// aten::index_put, aten::_unsafe_index_put, aten::_index_put_impl
Values index_put(Emit& e, const Call& c) {
  Value self = c.tensor("self"), values = e.to(c.tensor("values"), self.element());
  Values list = c.tensors("indices");
  int64_t given = 0, masks = 0, first = 0;
  for (size_t d = 0; d < list.size(); ++d) {
    if (!list[d]) continue;
    if (++given == 1) first = static_cast<int64_t>(d);
    if (list[d].element() == ElementType::kU8) throw Unsupported("an index by a uint8 mask, which is deprecated");
    masks += is_mask(list[d]);
  }
  // A single value for a mask is a fill, which converts its dtype.
  const bool fills = given == 1 && masks == 1 && values.type.elements() == 1 && !c.boolean("accumulate");
  if (!fills && c.type("values").dtype != c.type("self").dtype) throw Mistake("the values are of another dtype");
  if (given == 1 && masks == 1) {
    if (!covers(list[static_cast<size_t>(first)], self, first)) throw Mistake("a mask of another shape");
    if (self.type.elements() == 0) return {self};
    return {put_masked(e, self, first, list[static_cast<size_t>(first)], values, c.boolean("accumulate"))};
  }
  TupleIndex index = tuple_index(e, c, self.dims());
  if (self.type.elements() == 0) return {self};
  const bool accumulate = c.boolean("accumulate");
  if (index.indices.empty()) {
    Value all = e.broadcast_to(values, self.dims());
    return {accumulate ? e.add(self, all) : all};
  }
  Value updates = e.broadcast_to(values, tuple_result_dims(index, self.dims()));
  return {scatter_tuple(e, self, index, updates, accumulate ? Combine::kAdd : Combine::kReplace)};
}

// aten::index_select: a 0-d self counts as one element, a 0-d index as one index.
Values index_select(Emit& e, const Call& c) {
  Value self = c.tensor("self"), index = c.tensor("index");
  const Type result = e.type_of(c.result());
  if (index.rank() > 1) throw Mistake("indices of more than one dimension");
  if (self.rank() == 0 && index.type.elements() != 1) throw Mistake("a number has one element");
  if (result.elements() == 0) return {e.zeros(result)};
  const int64_t dim = c.dim("dim", self.rank());
  e.require(index, 0, self.rank() == 0 ? 1 : self.dim(dim), "index out of range in self: {}");
  if (self.rank() == 0) self = e.reshape(self, {1});
  index = e.reshape(index, {index.type.elements()});
  return {e.reshape(e.take(self, index, dim), result.dims)};
}

// aten::gather: the index may be smaller than self in the other dimensions.
Values gather(Emit& e, const Call& c) {
  Value self = c.tensor("self");
  const Type result = e.type_of(c.result());
  if (result.elements() == 0) return {e.zeros(result)};
  const int64_t dim = c.dim("dim", self.rank());
  Value index = required_index(e, c, self, dim, false, false);
  if (self.rank() == 0) self = e.reshape(self, {1});
  if (index.rank() == 0) index = e.reshape(index, {1});
  return {e.reshape(e.gather_along(self, index, dim), result.dims)};
}

void require_element(Emit& e, const Value& index, int64_t n) {
  if (n == 0 && index.type.elements() > 0) throw Mistake("an index into an empty tensor");
  e.require(index, -n, n, "out of range: tried to access index {} on a tensor of " + std::to_string(n) + " elements.");
}

// aten::take: indices into the flattened tensor.
Values take(Emit& e, const Call& c) {
  Value self = c.tensor("self"), index = c.tensor("index");
  const Type result = e.type_of(c.result());
  if (result.elements() == 0) return {e.zeros(result)};
  const int64_t n = self.type.elements();
  require_element(e, index, n);
  Value flat = wrap_index(e, e.reshape(index, {index.type.elements()}), n, index_element({n}));
  return {e.reshape(e.take(e.reshape(self, {n}), flat, 0), result.dims)};
}

// aten::put: writes into the flattened tensor.
Values put(Emit& e, const Call& c) {
  Value self = c.tensor("self"), index = c.tensor("index"), source = c.tensor("source");
  const int64_t n = self.type.elements(), count = index.type.elements();
  if (c.type("source").dtype != c.type("self").dtype) throw Mistake("the source is of another dtype");
  if (source.type.elements() != count) throw Mistake("the source has another number of elements than the index");
  if (!hlo::is_integer(index.element())) throw Mistake("an index that is no integer");
  require_element(e, index, n);
  if (n == 0 || count == 0) return {self};
  Value flat = wrap_index(e, e.reshape(index, {count}), n, index_element({n}));
  Value written = scatter_slices(e, e.reshape(self, {n}), 0, flat, e.reshape(source, {count}),
                                 c.boolean("accumulate") ? Combine::kAdd : Combine::kReplace);
  return {e.reshape(written, self.dims())};
}

// aten::masked_fill.Scalar: self and mask broadcast against each other.
Values masked_fill_scalar(Emit& e, const Call& c) {
  const Dims dims = dims_of(c.result());
  Value self = e.broadcast_to(c.tensor("self"), dims);
  Value mask = e.broadcast_to(e.to(c.tensor("mask"), ElementType::kPred), dims);
  return {e.select(mask, e.broadcast_to(c.scalar(e, "value", self.element()), dims), self)};
}

// aten::masked_fill.Tensor: value is 0-d.
Values masked_fill_tensor(Emit& e, const Call& c) {
  const Dims dims = dims_of(c.result());
  Value self = e.broadcast_to(c.tensor("self"), dims);
  Value mask = e.broadcast_to(e.to(c.tensor("mask"), ElementType::kPred), dims);
  return {e.select(mask, e.broadcast_to(e.to(c.tensor("value"), self.element()), dims), self)};
}

// Returns each true element's position among the true elements of the flattened mask; elsewhere the position of the
// last true element before.
Value true_order(Emit& e, const Value& mask) {
  Value flat = e.reshape(e.to(mask, ElementType::kPred), {mask.type.elements()});
  Value before = e.cumulative(e.convert(flat, index_element(flat.dims())), 0, "add", 0);
  return e.sub(before, e.ones(before.type));
}

// aten::masked_scatter: the i-th true element gets source's i-th.
Values masked_scatter(Emit& e, const Call& c) {
  const Dims dims = dims_of(c.result());
  if (c.tensor("mask").element() != ElementType::kPred) throw Mistake("the mask is not boolean");
  Value self = e.broadcast_to(c.tensor("self"), dims), source = c.tensor("source");
  Value mask = e.broadcast_to(e.to(c.tensor("mask"), ElementType::kPred), dims);
  const int64_t n = source.type.elements(), places = self.type.elements();
  if (c.type("source").dtype != c.type("self").dtype) throw Mistake("the source is of another dtype");
  if (places == 0) return {self};
  Value order = true_order(e, mask);
  e.require(e.slice(order, {places - 1}, {places}, {1}), -1, n, "Number of elements of source < number of ones in mask",
            false);
  if (n == 0) return {self};
  order = e.maximum(order, e.zeros(order.type));
  Value spread = e.reshape(e.take(e.reshape(source, {n}), order, 0), dims);
  return {e.select(mask, e.to(spread, self.element()), self)};
}

// aten::masked_scatter_backward: the gradient at the true elements, in order; zero in the rest of source.
Values masked_scatter_backward(Emit& e, const Call& c) {
  Value grad = c.tensor("grad_output");
  const Type result = e.type_of(c.result());
  if (grad.type.elements() == 0 || result.elements() == 0) return {e.zeros(result)};
  Value mask = e.broadcast_to(e.to(c.tensor("mask"), ElementType::kPred), grad.dims());
  Value order = true_order(e, mask);
  Value nowhere = e.constant(result.elements(), order.type);
  Value place = e.select(e.reshape(mask, order.dims()), order, nowhere);
  Value zeros = e.zeros({grad.element(), {result.elements()}});
  return {e.reshape(scatter_slices(e, zeros, 0, place, e.reshape(grad, order.dims()), Combine::kReplace), result.dims)};
}

// aten::nonzero_static: the first `size` positions of nonzero elements, then fill_value.
Values nonzero_static(Emit& e, const Call& c) {
  Value self = c.tensor("self");
  const Type result = e.type_of(c.result());
  if (result.elements() == 0 || self.type.elements() == 0) {
    return {e.constant(c.integer("fill_value"), result)};
  }
  Value mask = e.to(self, ElementType::kPred);
  Value order = true_order(e, mask);
  const int64_t size = result.dims[0];
  Value place = e.select(e.reshape(mask, order.dims()), order, e.constant(size, order.type));
  Values columns;
  for (int64_t d = 0; d < self.rank(); ++d) {
    Value coordinate = e.reshape(e.iota({ElementType::kS64, self.dims()}, d), order.dims());
    Value fill = e.constant(c.integer("fill_value"), Type{ElementType::kS64, {size}});
    columns.push_back(e.reshape(scatter_slices(e, fill, 0, place, coordinate, Combine::kReplace), {size, 1}));
  }
  return {e.concatenate(columns, 1)};
}

}  // namespace

void add_indexing_rules(RuleTable& rules) {
  rules.add_composite("aten::index.Tensor", index);
  rules.add("aten::_unsafe_index.Tensor", index);
  rules.add_composite("aten::index_put", index_put, kBFloat16WrittenByAten);
  rules.add("aten::_unsafe_index_put", index_put, kBFloat16WrittenByAten);
  rules.add("aten::_index_put_impl", index_put, kBFloat16WrittenByAten);
  rules.add_composite("aten::index_select", index_select, kPickedByAten);
  rules.add_composite("aten::gather", gather);
  rules.add("aten::take", take);
  rules.add("aten::put", put, kBFloat16WrittenByAten);
  rules.add("aten::masked_fill.Scalar", masked_fill_scalar);
  rules.add("aten::masked_fill.Tensor", masked_fill_tensor);
  rules.add("aten::masked_scatter", masked_scatter, kWrittenByAten);
  rules.add("aten::masked_scatter_backward", masked_scatter_backward, kByAten);
  rules.add("aten::nonzero_static", nonzero_static, {.aten_from = 1024});
  add_scatter_rules(rules);
}

}  // namespace tpjrt::ops
