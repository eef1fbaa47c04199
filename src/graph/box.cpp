// Recognizes views that are boxes of their base.
#include "graph/box.h"

namespace tpjrt::graph {

std::optional<Box> box_of(const TensorType& base, const TensorType& view, int64_t offset) {
  if (base.dtype != view.dtype || base.numel() == 0) return std::nullopt;
  const size_t rank = base.sizes.size();
  Box box{Sizes(rank, 0), Sizes(rank, 1), Sizes(rank, -1)};
  for (const int64_t dim : base.memory_order()) {
    const auto d = static_cast<size_t>(dim);
    if (base.sizes[d] == 1) continue;
    box.starts[d] = offset / base.strides[d];
    offset %= base.strides[d];
  }
  if (offset != 0) return std::nullopt;
  for (size_t axis = 0; axis < view.sizes.size(); ++axis) {
    if (view.sizes[axis] == 1) continue;
    size_t d = 0;
    while (d < rank && (base.sizes[d] == 1 || base.strides[d] != view.strides[axis] || box.axes[d] >= 0)) ++d;
    if (d == rank) return std::nullopt;
    box.axes[d] = static_cast<int64_t>(axis);
    box.extents[d] = view.sizes[axis];
  }
  for (size_t d = 0; d < rank; ++d) {
    if (box.starts[d] + box.extents[d] > base.sizes[d]) return std::nullopt;
  }
  return box;
}

}  // namespace tpjrt::graph
