// Finds the arguments of a call that share memory.
#include "engine/compiled_call/overlaps.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>

#include "device/tensor/storage.h"

namespace tpjrt::engine {
namespace {

// A dimension of two tensors with equal strides.
struct Dimension {
  int64_t stride, a, b;
};

// Returns whether elements of a and b coincide, if a's first one is `distance` elements after b's: whether
// `distance` is a sum of stride * (index in b - index in a). Dimensions are sorted by descending stride, each of which
// exceeds the extent of those that follow.
bool coincide(const std::vector<Dimension>& dimensions, size_t next, int64_t distance) {
  if (next == dimensions.size()) return distance == 0;
  const Dimension& d = dimensions[next];
  const int64_t below = distance >= 0 ? distance / d.stride : -((-distance + d.stride - 1) / d.stride);
  for (const int64_t steps : {below, below + 1}) {
    if (-d.a < steps && steps < d.b && coincide(dimensions, next + 1, distance - steps * d.stride)) return true;
  }
  return false;
}

}  // namespace

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_alias_of(b) || a.dtype() != b.dtype() || a.strides() != b.strides()) return true;
  std::vector<Dimension> dimensions;
  for (int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) > 1 || b.size(d) > 1) dimensions.push_back({a.stride(d), a.size(d), b.size(d)});
  }
  std::ranges::sort(dimensions, [](const Dimension& x, const Dimension& y) { return x.stride > y.stride; });
  int64_t extent = 0;
  for (auto d = dimensions.rbegin(); d != dimensions.rend(); ++d) {
    if (d->stride <= extent) return true;
    extent += (std::max(d->a, d->b) - 1) * d->stride;
  }
  return coincide(dimensions, 0, a.storage_offset() - b.storage_offset());
}

Overlaps::Overlaps(const std::vector<uint32_t>& updated, size_t count, std::vector<int> groups)
    : updated_(count), groups_(std::move(groups)) {
  groups_.resize(count, -1);
  for (const uint32_t index : updated) updated_.at(index) = true;
}

Overlaps::Range Overlaps::range_of(const at::Tensor& tensor) {
  if (tensor.layout() != c10::kStrided || !tensor.has_storage()) return {};
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const uintptr_t size = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize());
  const auto offset = static_cast<uintptr_t>(tensor.storage_offset()) * tensor.itemsize();
  if (device::is_pjrt(tensor)) return {storage, offset, offset + size};
  const uintptr_t begin = reinterpret_cast<uintptr_t>(storage->data()) + offset;
  return storage->data() ? Range{nullptr, begin, begin + size} : Range{};
}

std::optional<std::pair<size_t, size_t>> Overlaps::find(const std::vector<const at::Tensor*>& arguments) {
  now_.assign(arguments.size(), {});
  changed_.clear();
  bool are_close = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i]) now_[i] = range_of(*arguments[i]);
    if (i >= last_.size() || now_[i] != last_[i]) changed_.push_back(i);
  }
  for (const size_t i : changed_) {
    const Range& mine = now_[i];
    for (size_t j = 0; j < now_.size(); ++j) {
      const Range& other = now_[j];
      if (i == j || mine.storage != other.storage || std::max(mine.begin, other.begin) >= std::min(mine.end, other.end))
        continue;
      if (!(updated_[i] || updated_[j]) || (groups_[i] >= 0 && groups_[i] == groups_[j])) continue;
      are_close = true;
      if (!overlap(*arguments[i], *arguments[j])) continue;
      last_.clear();
      return updated_[i] ? std::pair(i, j) : std::pair(j, i);
    }
  }
  std::swap(last_, now_);
  if (are_close) last_.clear();  // ranges don't tell whether their elements coincide
  return std::nullopt;
}

}  // namespace tpjrt::engine
