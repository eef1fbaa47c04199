// The table of frozen weights.
#include "kernels/cpu/frozen_weights.h"

#include <ATen/Parallel.h>
#include <ATen/ops/mkldnn_reorder_conv2d_weight.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__)
#define TPJRT_AS_WIDE_AS_IT_HAS __attribute__((target_clones("avx512f", "default")))
#else
#define TPJRT_AS_WIDE_AS_IT_HAS
#endif

namespace tpjrt::kernels {

namespace {

struct Table {
  std::mutex lock;
  std::unordered_map<int64_t, std::shared_ptr<const Frozen>> by_number;
  int64_t last = 0;
};
Table& table() {
  static auto* all = new Table;
  return *all;
}

}  // namespace

FrozenWeight::FrozenWeight() {
  const std::lock_guard guard(table().lock);
  number_ = ++table().last;
}

FrozenWeight::~FrozenWeight() {
  const std::lock_guard guard(table().lock);
  table().by_number.erase(number_);
}

void FrozenWeight::put(const at::Tensor& weight, std::optional<at::Tensor> bias, const Window& window,
                       c10::IntArrayRef images) {
  const at::Tensor packed = at::mkldnn_reorder_conv2d_weight(weight.to_mkldnn(), window.padding, window.stride,
                                                             window.dilation, window.groups, images);
  auto frozen = std::make_shared<const Frozen>(Frozen{packed, std::move(bias)});
  const std::lock_guard guard(table().lock);
  table().by_number[number_] = std::move(frozen);
}

std::shared_ptr<const Frozen> find_frozen(int64_t number) {
  const std::lock_guard guard(table().lock);
  const auto found = table().by_number.find(number);
  TORCH_CHECK(found != table().by_number.end(), "a program asks for the frozen weight ", number, ", which is gone");
  return found->second;
}

// Sums of products, in eight lanes that don't depend on each other.

namespace {

constexpr size_t kBlock = 64;               // bytes: one word for each lane
constexpr size_t kPiece = size_t{1} << 18;  // bytes that one thread reads at a time
// An odd number without a pattern: the fractional part of the golden ratio. kMix is one of XXH64's.
constexpr uint64_t kStep = 0x9E3779B97F4A7C15, kMix = 0xC2B2AE3D27D4EB4F;

// Adds whole blocks, and the bytes of the last one padded with zeros.
TPJRT_AS_WIDE_AS_IT_HAS void add_blocks(const char* data, size_t bytes, uint64_t* sums) {
  Digest keys{}, words{};
  for (size_t lane = 0; lane < 8; ++lane) keys[lane] = (lane + 1) * kMix;
  const auto add = [&](const char* from, size_t count) {
    std::memcpy(words.data(), from, count);
    for (size_t lane = 0; lane < 8; ++lane) {
      const uint64_t word = words[lane] ^ keys[lane];
      sums[lane] += (word & 0xFFFFFFFF) * (word >> 32) + (words[lane] << 32 | words[lane] >> 32);
      keys[lane] += kStep;  // equal words at other places add different values
    }
  };
  size_t at = 0;
  for (; at + kBlock <= bytes; at += kBlock) {
    add(data + at, kBlock);
    if (at % (16 * kBlock) != 0) continue;
    for (size_t lane = 0; lane < 8; ++lane) sums[lane] = (sums[lane] ^ sums[lane] >> 47) * kMix;
  }
  words = {};
  if (at < bytes) add(data + at, bytes - at);
}

Digest digest_of(const void* data, size_t bytes) {
  Digest sums{};
  add_blocks(static_cast<const char*>(data), bytes, sums.data());
  sums[7] ^= bytes;
  for (uint64_t& sum : sums) sum = (sum ^ sum >> 47) * kMix;
  return sums;
}

}  // namespace

Digest digest(c10::ArrayRef<at::Tensor> tensors) {
  struct Piece {
    const char* data;
    size_t bytes;
  };
  std::vector<Piece> pieces;
  std::vector<at::Tensor> dense;
  std::vector<int64_t> words;
  for (const at::Tensor& tensor : tensors) {
    dense.push_back(tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous());
    words.push_back(static_cast<int64_t>(tensor.scalar_type()));
    words.push_back(tensor.is_conj() + 2 * tensor.is_neg());
    for (const c10::IntArrayRef each : {tensor.sizes(), tensor.strides()})
      words.insert(words.end(), each.begin(), each.end());
    const char* data = static_cast<const char*>(dense.back().const_data_ptr());
    for (size_t at = 0; at < tensor.nbytes(); at += kPiece)
      pieces.push_back({data + at, std::min(kPiece, tensor.nbytes() - at)});
  }
  std::vector<Digest> digests(pieces.size() + 1);
  digests.back() = digest_of(words.data(), words.size() * sizeof(int64_t));
  at::parallel_for(0, static_cast<int64_t>(pieces.size()), 1, [&](int64_t from, int64_t to) {
    for (auto i = static_cast<size_t>(from); i < static_cast<size_t>(to); ++i)
      digests[i] = digest_of(pieces[i].data, pieces[i].bytes);
  });
  return digest_of(digests.data(), digests.size() * sizeof(Digest));
}

}  // namespace tpjrt::kernels
