// Lists of dimensions and positions that rules iterate over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>

#include "hlo/type.h"

namespace tpjrt::ops {

// Returns a dimension as an index.
inline size_t at(int64_t dim) { return static_cast<size_t>(dim); }

// Returns begin, begin + 1, …, end - 1; empty if end is not after begin.
inline hlo::Dims range(int64_t begin, int64_t end) {
  hlo::Dims dims(begin < end ? static_cast<size_t>(end - begin) : 0);
  std::iota(dims.begin(), dims.end(), begin);
  return dims;
}

// Returns the dimension order of NHWC images, logically [N, C, ...], the fastest first.
inline hlo::Dims channels_last(int64_t rank) {
  hlo::Dims order{1};
  for (int64_t d = rank - 1; d > 1; --d) order.push_back(d);
  order.push_back(0);
  return order;
}

// Returns the number of positions in a box of these sizes.
inline int64_t count_of(const hlo::Dims& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// Calls f with each position in a box of these sizes (none of them 0), in row-major order.
template <class F>
void for_each_position(const hlo::Dims& sizes, F&& f) {
  for (hlo::Dims at(sizes.size(), 0);;) {
    f(at);
    size_t d = sizes.size();
    while (d > 0 && ++at[d - 1] == sizes[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace tpjrt::ops
