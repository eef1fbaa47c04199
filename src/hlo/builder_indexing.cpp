// gather and scatter.
#include <algorithm>

#include "hlo/builder_text.h"

namespace tpjrt::hlo {

namespace {

// Returns the dimensions of indices other than the index vector's.
Dims batch_dims(const Value& indices, int64_t index_vector_dim) {
  Dims dims = indices.dims();
  if (index_vector_dim < indices.rank()) dims.erase(dims.begin() + index_vector_dim);
  return dims;
}

int64_t index_vector_size(const Value& indices, int64_t index_vector_dim) {
  return index_vector_dim < indices.rank() ? indices.dim(index_vector_dim) : 1;
}

bool contains(const Dims& dims, int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

Dims joined(Dims a, const Dims& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void check_indices(std::string_view op, const Value& operand, const Value& indices, int64_t index_vector_dim,
                   const Dims& index_map) {
  check(is_integer(indices.element()), op, "indices of type ", indices.type);
  check(index_vector_dim >= 0 && index_vector_dim <= indices.rank(), op, "index_vector_dim ", index_vector_dim,
        " for indices of type ", indices.type);
  check(index_vector_size(indices, index_vector_dim) == static_cast<int64_t>(index_map.size()), op, "index map ",
        index_map, " for indices of type ", indices.type, ", index_vector_dim ", index_vector_dim);
  check_dimensions(op, "index map", index_map, operand.rank());
}

}  // namespace

Value Builder::gather(const Value& operand, const Value& start_indices, const GatherDimensions& dimensions,
                      const Dims& slice_sizes, bool indices_are_sorted) {
  const GatherDimensions& d = dimensions;
  check_indices("gather", operand, start_indices, d.index_vector_dim, d.start_index_map);
  check(static_cast<int64_t>(slice_sizes.size()) == operand.rank(), "gather", "slice_sizes ", slice_sizes, " for ",
        operand.type);
  const Dims dropped = joined(d.collapsed_slice_dims, d.operand_batching_dims);
  check_dimensions("gather", "collapsed_slice_dims and operand_batching_dims", dropped, operand.rank());
  for (int64_t i = 0; i < operand.rank(); ++i) {
    int64_t size = slice_sizes[static_cast<size_t>(i)];
    check(size >= 0 && size <= operand.dim(i) && (size <= 1 || !contains(dropped, i)), "gather", "slice_sizes ",
          slice_sizes, " for ", operand.type);
  }
  const Dims offsets = without(slice_sizes, dropped);
  const Dims batch = batch_dims(start_indices, d.index_vector_dim);
  check(offsets.size() == d.offset_dims.size(), "gather", "offset_dims ", d.offset_dims, " for slices of ", offsets);
  Type result{operand.element(), Dims(offsets.size() + batch.size())};
  check_dimensions("gather", "offset_dims", d.offset_dims, result.rank());
  for (size_t i = 0, offset = 0, next = 0; i < result.dims.size(); ++i) {
    result.dims[i] = contains(d.offset_dims, static_cast<int64_t>(i)) ? offsets[offset++] : batch[next++];
  }
  return impl_->emit(
      result, "\"stablehlo.gather\"(", impl_->uses("gather", operand, start_indices),
      ") <{dimension_numbers = #stablehlo.gather<offset_dims = ", d.offset_dims,
      ", collapsed_slice_dims = ", d.collapsed_slice_dims, ", operand_batching_dims = ", d.operand_batching_dims,
      ", start_indices_batching_dims = ", d.start_indices_batching_dims, ", start_index_map = ", d.start_index_map,
      ", index_vector_dim = ", d.index_vector_dim, ">, indices_are_sorted = ", indices_are_sorted ? "true" : "false",
      ", slice_sizes = ", array(slice_sizes), "}> : ", arrow({&operand.type, &start_indices.type}, result));
}

Values Builder::scatter(const Values& inputs, const Value& indices, const Values& updates,
                        const ScatterDimensions& dimensions, const Region& body, bool indices_are_sorted,
                        bool unique_indices) {
  const ScatterDimensions& d = dimensions;
  check(!inputs.empty() && inputs.size() == updates.size(), "scatter", inputs.size(), " inputs and ", updates.size(),
        " updates");
  check_indices("scatter", inputs[0], indices, d.index_vector_dim, d.scatter_dims_to_operand_dims);
  const Dims dropped = joined(d.inserted_window_dims, d.input_batching_dims);
  check_dimensions("scatter", "inserted_window_dims and input_batching_dims", dropped, inputs[0].rank());
  const Dims window = without(inputs[0].dims(), dropped);
  const Dims batch = batch_dims(indices, d.index_vector_dim);
  std::vector<Type> results, scalars, arguments;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check(inputs[i].dims() == inputs[0].dims() && updates[i].element() == inputs[i].element(), "scatter", "operand ", i,
          " of type ", inputs[i].type, " with updates of type ", updates[i].type);
    check(updates[i].dims().size() == window.size() + batch.size() && d.update_window_dims.size() == window.size(),
          "scatter", "updates of type ", updates[i].type, " for window ", window, ", update_window_dims ",
          d.update_window_dims, " and indices of type ", indices.type);
    check_dimensions("scatter", "update_window_dims", d.update_window_dims, updates[i].rank());
    for (size_t j = 0, w = 0, b = 0; j < updates[i].dims().size(); ++j) {
      int64_t size = updates[i].dims()[j];
      bool fits = contains(d.update_window_dims, static_cast<int64_t>(j)) ? size <= window[w++] : size == batch[b++];
      check(fits, "scatter", "dimension ", j, " of updates of type ", updates[i].type, " for window ", window,
            " and indices of type ", indices.type);
    }
    results.push_back(inputs[i].type);
    scalars.push_back({inputs[i].element(), {}});
  }
  arguments = scalars;
  arguments.insert(arguments.end(), scalars.begin(), scalars.end());
  Values operands = inputs;
  operands.push_back(indices);
  operands.insert(operands.end(), updates.begin(), updates.end());
  std::string head = cat(
      "\"stablehlo.scatter\"(", impl_->uses("scatter", operands),
      ") <{indices_are_sorted = ", indices_are_sorted ? "true" : "false",
      ", scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = ", d.update_window_dims,
      ", inserted_window_dims = ", d.inserted_window_dims, ", input_batching_dims = ", d.input_batching_dims,
      ", scatter_indices_batching_dims = ", d.scatter_indices_batching_dims,
      ", scatter_dims_to_operand_dims = ", d.scatter_dims_to_operand_dims, ", index_vector_dim = ", d.index_vector_dim,
      ">, unique_indices = ", unique_indices ? "true" : "false", "}> (");
  std::string block = impl_->region("scatter", arguments, body, scalars);
  return impl_->emit(results, head, block, ") : ", arrow(operands, results));
}

}  // namespace tpjrt::hlo
