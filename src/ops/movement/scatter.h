// Scatter and index idioms that several families share: three ways to say where the updates go.
//
// Indices out of range: a read is clamped into range and a write is dropped, as XLA does, and the rules require that there are
// none (Emit::require_index): so an IndexError is raised when results are read. Negative indices wrap only where torch's
// own op lets them (index, index_put, index_fill, take, put).
#pragma once

#include <string_view>

#include "ops/rule/rules.h"

namespace tpjrt::ops {

// What an update does to the element it meets.
enum class Combine : uint8_t { kReplace, kAdd, kMultiply, kMaximum, kMinimum };

// The integer type in which positions along dimensions of these sizes are computed: kS32 where it suffices.
ElementType index_element(const Dims& sizes);
// `index` in `element`, with -1 the last of `size` positions.
Value wrap_index(Emit& e, const Value& index, int64_t size, ElementType element);
// The argument "index", required to lie in dimension `dim` of self. 0-d tensors count as one element. `message`: where the CPU has its own.
Value required_index(Emit& e, const Call& c, const Value& self, int64_t dim, bool wraps, bool index_error,
                     const char* message = "");

// torch.scatter: self[..., index[p], ...] meets updates[p], with index at `dim` and p's own coordinates elsewhere.
// updates has index's sizes.
Value scatter_along(Emit& e, const Value& self, int64_t dim, const Value& index, const Value& updates, Combine combine);

// Slices of self along dim: self[..., index[i], ...] meets updates[..., i, ...]. index is 1-d; in 0-d tensors dim is 0.
Value scatter_slices(Emit& e, const Value& self, int64_t dim, const Value& index, const Value& updates,
                     Combine combine);

// Advanced indexing: `indices[i]` (all of one shape and element type) index dimension `indexed[i]` (ascending).
// The index shape takes the place of the indexed dimensions when they are adjacent, else comes first.
struct TupleIndex {
  Dims indexed;
  Values indices;
  Dims shape;            // the index shape
  int64_t position = 0;  // where it begins in the result
};
Dims tuple_result_dims(const TupleIndex& index, const Dims& self);
Value gather_tuple(Emit& e, const Value& self, const TupleIndex& index);
Value scatter_tuple(Emit& e, const Value& self, const TupleIndex& index, const Value& updates, Combine combine);

}  // namespace tpjrt::ops
