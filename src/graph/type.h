// The type of a value in the graph: dtype, sizes and strides of a dense torch tensor.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tpjrt::graph {

using Sizes = c10::SmallVector<int64_t, 6>;

struct TensorType {
  c10::ScalarType dtype;
  Sizes sizes;
  Sizes strides;  // in elements; dense (each element of memory is used once) except for views

  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  int64_t numel() const;
  size_t nbytes() const;
  bool is_contiguous() const;  // row-major
  // Returns the permutation of the dimensions into memory order, outermost first.
  Sizes memory_order() const;
};

// Types are interned: a distinct type has one address for the life of the process, so types are compared by pointer.
using TypePtr = const TensorType*;

// Thread-safe. The pointer is valid forever.
TypePtr intern(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides);
TypePtr intern_contiguous(c10::ScalarType dtype, c10::IntArrayRef sizes);
// Returns the type with strides of dense memory in the same order, in which such a value is stored.
TypePtr dense(TypePtr type);

// Returns "f32[2, 3]", with strides if it is not row-major: "f32[2, 3]{1, 2}".
std::string to_string(const TensorType& type);

// A view that is a box: the result of slices with step 1 and selects of a tensor's dimensions. By the dimensions of the
// dense base tensor.
struct Box {
  Sizes starts, extents;
  Sizes axes;  // the view's dimension along it, or -1: a single element is taken
};

// Returns nothing if the view is no box of `base`: it has steps, another dtype, or another shape of the memory.
std::optional<Box> box_of(const TensorType& base, const TensorType& view, int64_t offset);

}  // namespace tpjrt::graph
