// Overlaps: whether a call updates memory that two of its arguments share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tpjrt::engine {

// Returns whether two tensors have a byte in common. May return true for tensors of different strides that have none.
bool overlap(const at::Tensor& a, const at::Tensor& b);

// A program has a buffer for each argument, so an update of one does not reach another that shares its memory.
// Not thread-safe.
class Overlaps {
 public:
  // `updated`: indices of the arguments that are updated in place, among `count`. `groups`: for each argument the group
  // of those with which it may overlap, or -1; empty means none.
  Overlaps(const std::vector<uint32_t>& updated, size_t count, std::vector<int> groups = {});

  // Returns an updated argument and another one that overlap, unless they are of one group. Null stands for a scalar.
  // Arguments are compared if their memory has changed since the last call that returned none.
  std::optional<std::pair<size_t, size_t>> find(const std::vector<const at::Tensor*>& arguments);

 private:
  struct Range {
    const void* storage = nullptr;  // null if begin and end are addresses
    uintptr_t begin = 0, end = 0;
    bool operator==(const Range&) const = default;
  };
  static Range range_of(const at::Tensor& tensor);

  std::vector<bool> updated_;
  std::vector<int> groups_;
  std::vector<Range> last_, now_;
  std::vector<size_t> changed_;
};

}  // namespace tpjrt::engine
