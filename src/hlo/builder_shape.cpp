// Ops that move elements by position: reshape, transpose, slice, pad, concatenate, …
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

}  // namespace tpjrt::hlo
