// Views that are boxes: results of slices with step 1 and selects of a tensor's dimensions.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/type.h"

namespace tpjrt::graph {

// By the dimensions of the dense base tensor.
struct Box {
  Sizes starts, extents;
  Sizes axes;  // the view's dimension along it, or -1: a single element is taken
};

// Returns nothing if the view is no box of `base`: it has steps, another dtype, or another shape of the memory.
std::optional<Box> box_of(const TensorType& base, const TensorType& view, int64_t offset);

}  // namespace tpjrt::graph
