// Views that are boxes: what slices (of step 1) and selects of a tensor's dimensions give.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/type.h"

namespace tpjrt::graph {

// By the dimensions of the dense tensor that is viewed.
struct Box {
  Sizes starts, extents;
  Sizes axes;  // the view's dimension that runs along it, or -1: one element is taken
};

// None where the view is no box of `base`: it has steps, another dtype, or sees the memory in another shape.
std::optional<Box> box_of(const TensorType& base, const TensorType& view, int64_t offset);

}  // namespace tpjrt::graph
