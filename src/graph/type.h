// The type of a value in the graph: what a plain dense torch tensor is made of.
//
// Types are interned: one address per distinct type for the life of the process, so they are compared by pointer.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <string>

namespace tpjrt::graph {

using Sizes = c10::SmallVector<int64_t, 6>;

struct TensorType {
  c10::ScalarType dtype;
  Sizes sizes;
  Sizes strides;  // in elements; dense (every element of memory is used once) unless the type is a view's

  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  int64_t numel() const;
  size_t nbytes() const;
  bool is_contiguous() const;  // row-major
  // The permutation that puts the dimensions in the order in which memory is laid out, outermost first.
  Sizes memory_order() const;
};

using TypePtr = const TensorType*;

// Thread-safe. The pointer is valid for ever.
TypePtr intern(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides);
TypePtr intern_contiguous(c10::ScalarType dtype, c10::IntArrayRef sizes);
// The same with the strides of dense memory in the same order: the form in which such a value is kept.
TypePtr dense(TypePtr type);

// "f32[2, 3]", and with strides where they are not row-major: "f32[2, 3]{1, 2}".
std::string to_string(const TensorType& type);

}  // namespace tpjrt::graph
