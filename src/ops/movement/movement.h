// Helpers of movement that other families use, too: scatter and index idioms, sorting, and writes through strides.
#pragma once

#include <optional>
#include <string_view>

#include "ops/rule/call.h"
#include "ops/rule/emit.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {

// How an update changes the element at its position.
enum class Combine : uint8_t { kReplace, kAdd, kMultiply, kMaximum, kMinimum };

// Returns the integer type for positions along dimensions of these sizes: kS32 where it suffices.
ElementType index_element(const Dims& sizes);
// Returns `index` in `element`, with -1 as the last of `size` positions.
Value wrap_index(Emit& e, const Value& index, int64_t size, ElementType element);
// Returns the argument "index", and asserts that it is in range of dimension `dim` of self. 0-d tensors count as one
// element. `message`: the CPU's own words, if it has any.
Value required_index(Emit& e, const Call& c, const Value& self, int64_t dim, bool wraps, bool index_error,
                     const char* message = "");

// torch.scatter: combines self[..., index[p], ...] with updates[p], with index at `dim` and p's own coordinates
// elsewhere. updates has index's sizes.
Value scatter_along(Emit& e, const Value& self, int64_t dim, const Value& index, const Value& updates, Combine combine);

// Combines slices of self along dim: self[..., index[i], ...] with updates[..., i, ...]. index is 1-d; in 0-d tensors
// dim is 0.
Value scatter_slices(Emit& e, const Value& self, int64_t dim, const Value& index, const Value& updates,
                     Combine combine);

// Advanced indexing: `indices[i]` (all of one shape and element type) index dimension `indexed[i]` (ascending). The
// index shape replaces the indexed dimensions if they are adjacent, else it comes first.
struct TupleIndex {
  Dims indexed;
  Values indices;
  Dims shape;            // the index shape
  int64_t position = 0;  // where it begins in the result
};
Dims tuple_result_dims(const TupleIndex& index, const Dims& self);
Value gather_tuple(Emit& e, const Value& self, const TupleIndex& index);
Value scatter_tuple(Emit& e, const Value& self, const TupleIndex& index, const Value& updates, Combine combine);

// Sorting in torch's order: NaN is the greatest, and equal elements keep their order. sorting.cpp and random.cpp
// share it.

struct Sorted {
  Value values, indices;  // the indices are s64 positions along the dimension
};

Sorted sort_along(Emit& e, const Value& x, int64_t dim, bool descending);

// Writes through sizes, strides and an offset (pjrt::write).

// Returns the update with elements that share memory along a dimension merged: the first stands for all (fill_ writes
// only one value).
Value without_shared(Emit& e, Value update, const Dims& strides);

// Returns the base with the update written over it by PyTorch, if each element has a place of its own. Returns
// nothing where XLA writes it. Defined in ops/xla_cpu/library_calls.cpp.
std::optional<Value> library_write(Emit& e, const Call& c);

}  // namespace tpjrt::ops
