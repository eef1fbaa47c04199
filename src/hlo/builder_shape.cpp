// Ops that move elements by position: reshape, transpose, slice, pad, concatenate, … gather and scatter.
#include <algorithm>

#include "hlo/builder_text.h"

namespace tpjrt::hlo {

Value Builder::reshape(const Value& x, const Dims& dims) {
  if (x.dims() == dims) return x;
  Type result{x.element(), dims};
  check(
      std::all_of(dims.begin(), dims.end(), [](int64_t d) { return d >= 0; }) && result.elements() == x.type.elements(),
      "reshape", x.type, " to ", dims);
  return impl_->emit_moved(result, x, "stablehlo.reshape ", impl_->use("reshape", x), " : ", arrow({&x.type}, result));
}

Value Builder::transpose(const Value& x, const Dims& permutation) {
  check(static_cast<int64_t>(permutation.size()) == x.rank(), "transpose", "permutation ", permutation, " for ",
        x.type);
  check_dimensions("transpose", "permutation", permutation, x.rank());
  if (std::is_sorted(permutation.begin(), permutation.end())) return x;
  Type result{x.element(), {}};
  for (int64_t p : permutation) result.dims.push_back(x.dim(p));
  Value transposed = impl_->emit_moved(result, x, "stablehlo.transpose ", impl_->use("transpose", x),
                                       ", dims = ", permutation, " : ", arrow({&x.type}, result));
  impl_->transposes.emplace(transposed.id, Moved{x, permutation});
  return transposed;
}

const Value* Builder::transposed_from(const Value& x) const {
  const Moved* moved = x.rank() == 2 ? moved_from(x) : nullptr;
  return moved ? &moved->from : nullptr;
}

const Builder::Moved* Builder::moved_from(const Value& x) const {
  const auto found = impl_->transposes.find(x.id);
  return found == impl_->transposes.end() ? nullptr : &found->second;
}

Value Builder::broadcast_in_dim(const Value& x, const Dims& dims, const Dims& broadcast_dimensions) {
  const auto rank = static_cast<int64_t>(dims.size());
  check(static_cast<int64_t>(broadcast_dimensions.size()) == x.rank(), "broadcast_in_dim", "dimensions ",
        broadcast_dimensions, " for ", x.type);
  check_dimensions("broadcast_in_dim", "dimensions", broadcast_dimensions, rank);
  for (int64_t i = 0; i < x.rank(); ++i) {
    int64_t target = dims[static_cast<size_t>(broadcast_dimensions[static_cast<size_t>(i)])];
    check(x.dim(i) == 1 || x.dim(i) == target, "broadcast_in_dim", "dimension ", i, " of ", x.type,
          " does not broadcast to ", dims, " through ", broadcast_dimensions);
  }
  Type result{x.element(), dims};
  if (x.type == result && std::is_sorted(broadcast_dimensions.begin(), broadcast_dimensions.end())) return x;
  return impl_->emit_moved(result, x, "stablehlo.broadcast_in_dim ", impl_->use("broadcast_in_dim", x),
                           ", dims = ", broadcast_dimensions, " : ", arrow({&x.type}, result));
}

Value Builder::slice(const Value& x, const Dims& start, const Dims& limit, const Dims& strides) {
  const auto rank = static_cast<size_t>(x.rank());
  check(start.size() == rank && limit.size() == rank && strides.size() == rank, "slice", "start ", start, ", limit ",
        limit, ", strides ", strides, " for ", x.type);
  Type result{x.element(), {}};
  std::string ranges;
  for (size_t i = 0; i < rank; ++i) {
    check(0 <= start[i] && start[i] <= limit[i] && limit[i] <= x.dims()[i] && strides[i] > 0, "slice", start[i], ":",
          limit[i], ":", strides[i], " in dimension ", i, " of ", x.type);
    result.dims.push_back((limit[i] - start[i] + strides[i] - 1) / strides[i]);
    ranges += cat(i ? ", " : "", start[i], ":", limit[i]);
    if (strides[i] != 1) ranges += cat(":", strides[i]);
  }
  if (result == x.type) return x;
  return impl_->emit_moved(result, x, "stablehlo.slice ", impl_->use("slice", x), " [", ranges,
                           "] : ", arrow({&x.type}, result));
}

Value Builder::pad(const Value& x, const Value& value, const Dims& low, const Dims& high, const Dims& interior) {
  const auto rank = static_cast<size_t>(x.rank());
  check(value.type == Type{x.element(), {}}, "pad", "value of type ", value.type, " for ", x.type);
  check(low.size() == rank && high.size() == rank && interior.size() == rank, "pad", "low ", low, ", high ", high,
        ", interior ", interior, " for ", x.type);
  Type result{x.element(), {}};
  for (size_t i = 0; i < rank; ++i) {
    int64_t inner = x.dims()[i] + std::max<int64_t>(x.dims()[i] - 1, 0) * interior[i];
    result.dims.push_back(low[i] + inner + high[i]);
    check(interior[i] >= 0 && result.dims[i] >= 0, "pad", "dimension ", i, " of ", x.type, " by ", low[i], ", ",
          high[i], ", interior ", interior[i]);
  }
  if (result == x.type && std::all_of(low.begin(), low.end(), [](int64_t d) { return d == 0; })) return x;
  // Negative padding becomes a slice: XLA:CPU's older emitters don't support it, and its simplifier, which would remove
  // it, is off.
  const auto is_negative = [](int64_t width) { return width < 0; };
  if (std::any_of(low.begin(), low.end(), is_negative) || std::any_of(high.begin(), high.end(), is_negative)) {
    const auto added = [](Dims widths) {
      for (int64_t& width : widths) width = std::max<int64_t>(width, 0);
      return widths;
    };
    const Value padded = pad(x, value, added(low), added(high), interior);
    Dims start(rank), limit(rank);
    for (size_t i = 0; i < rank; ++i) {
      start[i] = std::max<int64_t>(-low[i], 0);
      limit[i] = start[i] + result.dims[i];
    }
    return slice(padded, start, limit, Dims(rank, 1));
  }
  return impl_->emit(result, "stablehlo.pad ", impl_->uses("pad", x, value), ", low = ", low, ", high = ", high,
                     ", interior = ", interior, " : ", arrow({&x.type, &value.type}, result));
}

Value Builder::reverse(const Value& x, const Dims& dimensions) {
  check_dimensions("reverse", "dimensions", dimensions, x.rank());
  if (dimensions.empty()) return x;
  return impl_->emit(x.type, "stablehlo.reverse ", impl_->use("reverse", x), ", dims = ", dimensions, " : ", x.type);
}

Value Builder::concatenate(const Values& xs, int64_t dimension) {
  check(!xs.empty(), "concatenate", "has no operand");
  check_dimensions("concatenate", "dimension", {dimension}, xs[0].rank());
  const auto axis = static_cast<size_t>(dimension);
  Type result = xs[0].type;
  result.dims[axis] = 0;
  for (size_t i = 0; i < xs.size(); ++i) {
    Type rest = xs[i].type;
    const bool same_rank = rest.rank() == result.rank();
    if (same_rank) rest.dims[axis] = result.dims[axis];
    check(same_rank && rest == result, "concatenate", "operand ", i, " of type ", xs[i].type, " does not fit ",
          xs[0].type, " along ", dimension);
    result.dims[axis] += xs[i].dims()[axis];
  }
  if (xs.size() == 1) return xs[0];
  return impl_->emit(result, "stablehlo.concatenate ", impl_->uses("concatenate", xs), ", dim = ", dimension, " : ",
                     arrow(xs, result));
}

static void check_starts(std::string_view op, const Value& x, const Values& starts) {
  check(static_cast<int64_t>(starts.size()) == x.rank(), op, starts.size(), " start indices for ", x.type);
  for (const Value& start : starts) {
    check(start.rank() == 0 && is_integer(start.element()) && start.type == starts[0].type, op, "start index of type ",
          start.type);
  }
}

Value Builder::dynamic_slice(const Value& x, const Values& starts, const Dims& sizes) {
  check_starts("dynamic_slice", x, starts);
  check(static_cast<int64_t>(sizes.size()) == x.rank(), "dynamic_slice", "sizes ", sizes, " for ", x.type);
  for (size_t i = 0; i < sizes.size(); ++i) {
    check(sizes[i] >= 0 && sizes[i] <= x.dims()[i], "dynamic_slice", "sizes ", sizes, " for ", x.type);
  }
  if (starts.empty()) return x;
  Type result{x.element(), sizes};
  Values operands{x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return impl_->emit(result, "stablehlo.dynamic_slice ", impl_->uses("dynamic_slice", operands), ", sizes = ", sizes,
                     " : ", arrow(operands, result));
}

Value Builder::dynamic_update_slice(const Value& x, const Value& update, const Values& starts) {
  check_starts("dynamic_update_slice", x, starts);
  bool fits = update.element() == x.element() && update.rank() == x.rank();
  for (int64_t i = 0; fits && i < x.rank(); ++i) fits = update.dim(i) <= x.dim(i);
  check(fits, "dynamic_update_slice", "update of type ", update.type, " for ", x.type);
  if (starts.empty()) return update;
  Values operands{x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return impl_->emit(x.type, "stablehlo.dynamic_update_slice ", impl_->uses("dynamic_update_slice", operands), " : ",
                     arrow(operands, x.type));
}

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
