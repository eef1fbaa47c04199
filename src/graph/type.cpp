// Interns and prints tensor types. Recognizes views that are boxes of their base.
#include "graph/type.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_set>

namespace tpjrt::graph {

namespace {

struct Hash {
  size_t operator()(const TensorType* type) const {
    size_t hash = static_cast<size_t>(type->dtype);
    auto mix = [&](int64_t value) { hash = (hash ^ static_cast<size_t>(value)) * 0x9E3779B97F4A7C15u + (hash >> 29); };
    mix(type->rank());
    for (int64_t size : type->sizes) mix(size);
    for (int64_t stride : type->strides) mix(stride);
    return hash;
  }
};

struct Equal {
  bool operator()(const TensorType* a, const TensorType* b) const {
    return a->dtype == b->dtype && a->sizes == b->sizes && a->strides == b->strides;
  }
};

std::string_view short_name(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Byte: return "u8";
    case c10::ScalarType::Char: return "i8";
    case c10::ScalarType::Short: return "i16";
    case c10::ScalarType::Int: return "i32";
    case c10::ScalarType::Long: return "i64";
    case c10::ScalarType::UInt16: return "u16";
    case c10::ScalarType::UInt32: return "u32";
    case c10::ScalarType::UInt64: return "u64";
    case c10::ScalarType::Half: return "f16";
    case c10::ScalarType::BFloat16: return "bf16";
    case c10::ScalarType::Float: return "f32";
    case c10::ScalarType::Double: return "f64";
    case c10::ScalarType::Bool: return "bool";
    case c10::ScalarType::ComplexHalf: return "c32";
    case c10::ScalarType::ComplexFloat: return "c64";
    case c10::ScalarType::ComplexDouble: return "c128";
    case c10::ScalarType::Float8_e4m3fn: return "f8e4m3fn";
    case c10::ScalarType::Float8_e4m3fnuz: return "f8e4m3fnuz";
    case c10::ScalarType::Float8_e5m2: return "f8e5m2";
    case c10::ScalarType::Float8_e5m2fnuz: return "f8e5m2fnuz";
    case c10::ScalarType::Float8_e8m0fnu: return "f8e8m0fnu";
    default: return c10::toString(dtype);
  }
}

Sizes contiguous_strides(c10::IntArrayRef sizes) {
  Sizes strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

void append_list(std::string& text, c10::IntArrayRef values) {
  for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
}

}  // namespace

int64_t TensorType::numel() const {
  int64_t n = 1;
  for (int64_t size : sizes) n *= size;
  return n;
}

size_t TensorType::nbytes() const { return static_cast<size_t>(numel()) * c10::elementSize(dtype); }

bool TensorType::is_contiguous() const {
  if (numel() == 0) return true;
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;  // its stride is never used
    if (strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

Sizes TensorType::memory_order() const {
  // Dimensions of size 1 keep their position, so that the order is the identity whenever possible.
  Sizes moving;
  for (int64_t i = 0; i < rank(); ++i) {
    if (sizes[static_cast<size_t>(i)] != 1) moving.push_back(i);
  }
  std::stable_sort(moving.begin(), moving.end(), [&](int64_t a, int64_t b) {
    return strides[static_cast<size_t>(a)] > strides[static_cast<size_t>(b)];
  });
  Sizes order;
  for (size_t i = 0, next = 0; i < sizes.size(); ++i) {
    order.push_back(sizes[i] == 1 ? static_cast<int64_t>(i) : moving[next++]);
  }
  return order;
}

TypePtr intern(c10::ScalarType dtype, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  // Leaked: types outlive every static that may hold one.
  static auto* types = new std::unordered_set<TypePtr, Hash, Equal>;
  static auto* mutex = new std::mutex;
  const TensorType key{dtype, Sizes(sizes.begin(), sizes.end()), Sizes(strides.begin(), strides.end())};
  std::lock_guard lock(*mutex);
  auto found = types->find(&key);
  if (found != types->end()) return *found;
  auto owned = std::make_unique<TensorType>(key);
  types->insert(owned.get());
  return owned.release();
}

TypePtr intern_contiguous(c10::ScalarType dtype, c10::IntArrayRef sizes) {
  return intern(dtype, sizes, contiguous_strides(sizes));
}

TypePtr dense(TypePtr type) {
  const Sizes order = type->memory_order();
  Sizes strides = type->strides;
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const auto axis = static_cast<size_t>(order[i]);
    if (type->sizes[axis] == 1) continue;  // any stride fits
    strides[axis] = stride;
    stride *= type->sizes[axis];
  }
  return strides == type->strides || type->numel() == 0 ? type : intern(type->dtype, type->sizes, strides);
}

std::string to_string(const TensorType& type) {
  std::string text(short_name(type.dtype));
  text += '[';
  append_list(text, type.sizes);
  text += ']';
  if (!type.is_contiguous()) {
    text += '{';
    append_list(text, type.strides);
    text += '}';
  }
  return text;
}

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
