// Digests, and what is kept by them.
#include "kernels/packed_weights.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tpjrt::kernels {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr size_t kMostSlots = 4096;
constexpr int64_t kLongestWait = 64;
// Odd, and without a pattern: the fractional part of the golden ratio, and others of XXH64's.
constexpr uint64_t kStep = 0x9E3779B97F4A7C15, kMix = 0xC2B2AE3D27D4EB4F;

at::Tensor reordered(const at::Tensor& weight, const PackedWeights::Use& use) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_reorder_convolution_weight", "");
  torch::jit::Stack stack{weight, use.padding, use.stride, use.dilation, use.groups, use.input};
  op.callBoxed(stack);
  return stack.front().toTensor();
}

}  // namespace

Digest digest(const float* data, size_t count) {
  Digest sums{};
  std::array<uint64_t, 8> keys{};
  for (size_t lane = 0; lane < 8; ++lane) keys[lane] = (lane + 1) * kMix;
  const auto take = [&](const std::array<uint64_t, 8>& words) {
    for (size_t lane = 0; lane < 8; ++lane) {
      const uint64_t word = words[lane] ^ keys[lane];
      sums[lane] += (word & 0xFFFFFFFF) * (word >> 32) + (words[lane] << 32 | words[lane] >> 32);
      keys[lane] += kStep;  // the same word elsewhere adds something else
    }
  };
  const auto mix = [&] {
    for (uint64_t& sum : sums) sum = (sum ^ sum >> 47) * kMix;
  };
  std::array<uint64_t, 8> words;
  size_t at = 0, block = 0;
  for (; at + 16 <= count; at += 16) {
    std::memcpy(words.data(), data + at, sizeof words);
    take(words);
    if (++block % 16 == 0) mix();
  }
  words = {};
  std::memcpy(words.data(), data + at, (count - at) * sizeof(float));
  words[7] ^= count;
  take(words);
  mix();
  return sums;
}

std::optional<at::Tensor> PackedWeights::find(const at::Tensor& weight, const Use& use) {
  std::vector<int64_t> key{reinterpret_cast<int64_t>(weight.const_data_ptr()), use.groups};
  for (const c10::IntArrayRef words : {weight.sizes(), use.padding, use.stride, use.dilation, use.input})
    key.insert(key.end(), words.begin(), words.end());
  Slot& slot = slots_[key];
  slot.used = ++calls_;
  if (slot.unseen > 0) {
    --slot.unseen;
    return {};
  }
  const Digest now = digest(weight.const_data_ptr<float>(), static_cast<size_t>(weight.numel()));
  if (slot.seen != now) {
    bytes_ -= std::exchange(slot.bytes, 0);
    slot.packed.reset();
    if (slot.seen) slot.unseen = slot.wait = std::min(2 * slot.wait + 1, kLongestWait);
    slot.seen = now;
    let_go();
    return {};
  }
  if (!slot.packed.defined()) {
    slot.packed = reordered(weight, use);
    slot.bytes = static_cast<int64_t>(weight.nbytes());
    bytes_ += slot.bytes;
    slot.wait = 0;
    let_go();
  }
  return slot.packed;
}

// Those that were not used for the longest time, while there are too many.
void PackedWeights::let_go() {
  while (bytes_ > kMostBytes || slots_.size() > kMostSlots) {
    const auto oldest = std::min_element(slots_.begin(), slots_.end(),
                                         [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    if (oldest->second.used == calls_) return;
    bytes_ -= oldest->second.bytes;
    slots_.erase(oldest);
  }
}

}  // namespace tpjrt::kernels
