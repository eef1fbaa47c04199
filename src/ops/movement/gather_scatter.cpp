// The index and scatter idioms of movement.h, in terms of StableHLO's gather and scatter.
#include <algorithm>

#include "ops/movement/movement.h"
#include "ops/rule/dims.h"
#include "ops/rule/expression.h"

namespace tpjrt::ops {

namespace {

// Sums and products of small floats are accumulated in f32.
Value scatter(Emit& e, const Value& self, const Value& indices, const Value& updates,
              const hlo::ScatterDimensions& dimensions, Combine combine) {
  if (updates.type.elements() == 0) return self;
  if (self.type.elements() == 0) return self;
  const bool accumulates = combine == Combine::kAdd || combine == Combine::kMultiply;
  const ElementType element = accumulates ? Emit::compute_element(self.element()) : self.element();
  auto body = [&](const Values& arguments) -> Values {
    switch (combine) {
      case Combine::kReplace: return {arguments[1]};
      case Combine::kAdd: return {e.add(arguments[0], arguments[1])};
      case Combine::kMultiply: return {e.mul(arguments[0], arguments[1])};
      case Combine::kMaximum: return {e.maximum(arguments[0], arguments[1])};
      case Combine::kMinimum: return {e.minimum(arguments[0], arguments[1])};
    }
    return {};
  };
  const auto met = [&](const Values& xs) { return e.scatter({xs[0]}, indices, {xs[1]}, dimensions, body)[0]; };
  if (combine == Combine::kReplace) return e.moved({self, updates}, met);
  return e.convert(met({e.convert(self, element), e.convert(updates, element)}), self.element());
}

// Returns the index tensors side by side in a new last dimension.
Value stacked(Emit& e, const Values& indices) {
  Values columns;
  for (const Value& index : indices) columns.push_back(e.unsqueeze(index, index.rank()));
  return columns.size() == 1 ? columns[0] : e.concatenate(columns, columns[0].rank() - 1);
}

}  // namespace

ElementType index_element(const Dims& sizes) {
  bool narrow = std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size <= INT32_MAX; });
  return narrow ? ElementType::kS32 : ElementType::kS64;
}

Value wrap_index(Emit& e, const Value& index, int64_t size, ElementType element) {
  Value i = e.convert(index, element);
  Value negative = e.compare(hlo::Comparison::kLt, i, e.zeros(i.type));
  return e.select(negative, e.add(i, e.constant(size, i.type)), i);
}

Value required_index(Emit& e, const Call& c, const Value& self, int64_t dim, bool wraps, bool index_error,
                     const char* message) {
  Value index = c.tensor("index");
  if (!hlo::is_integer(index.element())) throw Mistake("an index that is no integer");
  const int64_t size = self.rank() == 0 ? 1 : self.dim(dim);
  if (size == 0 && index.type.elements() > 0) throw Mistake("an index into a dimension of size 0");
  if (self.type.elements() == 0) return index;
  if (*message != '\0') {
    e.require(index, 0, size, message, index_error);
  } else {
    e.require_index(index, dim, size, wraps, index_error);
  }
  return index;
}

Value scatter_along(Emit& e, const Value& self, int64_t dim, const Value& index, const Value& updates,
                    Combine combine) {
  if (self.rank() == 0 || index.rank() == 0) {
    Value line = self.rank() == 0 ? e.reshape(self, {1}) : self;
    const Dims dims = {index.type.elements()};
    return e.reshape(scatter_along(e, line, 0, e.reshape(index, dims), e.reshape(updates, dims), combine), self.dims());
  }
  const ElementType element = index_element(self.dims());
  const int64_t rank = index.rank();
  Values coordinates;
  for (int64_t d = 0; d < rank; ++d) {
    coordinates.push_back(d == dim ? e.convert(index, element) : e.iota({element, index.dims()}, d));
  }
  hlo::ScatterDimensions dimensions;
  dimensions.inserted_window_dims = dimensions.scatter_dims_to_operand_dims = range(0, rank);
  dimensions.index_vector_dim = rank;
  return scatter(e, self, stacked(e, coordinates), updates, dimensions, combine);
}

Value scatter_slices(Emit& e, const Value& self, int64_t dim, const Value& index, const Value& updates,
                     Combine combine) {
  if (self.rank() == 0) {
    Value flat =
        scatter_slices(e, e.reshape(self, {1}), 0, index, e.reshape(updates, {updates.type.elements()}), combine);
    return e.reshape(flat, {});
  }
  hlo::ScatterDimensions dimensions;
  for (int64_t d = 0; d < self.rank(); ++d) {
    if (d != dim) dimensions.update_window_dims.push_back(d);
  }
  dimensions.inserted_window_dims = dimensions.scatter_dims_to_operand_dims = {dim};
  dimensions.index_vector_dim = 1;
  Value column = e.unsqueeze(e.convert(index, index_element(self.dims())), 1);
  return scatter(e, self, column, updates, dimensions, combine);
}

Dims tuple_result_dims(const TupleIndex& index, const Dims& self) {
  Dims dims;
  for (int64_t d = 0; d < static_cast<int64_t>(self.size()); ++d) {
    if (!std::count(index.indexed.begin(), index.indexed.end(), d)) dims.push_back(self[static_cast<size_t>(d)]);
  }
  dims.insert(dims.begin() + index.position, index.shape.begin(), index.shape.end());
  return dims;
}

Value gather_tuple(Emit& e, const Value& self, const TupleIndex& index) {
  const Dims dims = tuple_result_dims(index, self.dims());
  const int64_t rank = static_cast<int64_t>(dims.size()), index_rank = static_cast<int64_t>(index.shape.size());
  hlo::GatherDimensions dimensions;
  dimensions.offset_dims = range(0, index.position);
  for (int64_t d : range(index.position + index_rank, rank)) dimensions.offset_dims.push_back(d);
  dimensions.collapsed_slice_dims = dimensions.start_index_map = index.indexed;
  dimensions.index_vector_dim = index_rank;
  Dims slice_sizes = self.dims();
  for (int64_t d : index.indexed) slice_sizes[static_cast<size_t>(d)] = 1;
  return e.gather(self, stacked(e, index.indices), dimensions, slice_sizes);
}

Value scatter_tuple(Emit& e, const Value& self, const TupleIndex& index, const Value& updates, Combine combine) {
  const int64_t rank = updates.rank(), index_rank = static_cast<int64_t>(index.shape.size());
  hlo::ScatterDimensions dimensions;
  dimensions.update_window_dims = range(0, index.position);
  for (int64_t d : range(index.position + index_rank, rank)) dimensions.update_window_dims.push_back(d);
  dimensions.inserted_window_dims = dimensions.scatter_dims_to_operand_dims = index.indexed;
  dimensions.index_vector_dim = index_rank;
  return scatter(e, self, stacked(e, index.indices), updates, dimensions, combine);
}

}  // namespace tpjrt::ops
