// Threefry-2x32 with 20 rounds (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011), with the
// counters of XLA's RngBitGenerator.
#include "kernels/host/host_kernel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cmath>

namespace tpjrt::kernels {
namespace {

constexpr uint32_t kParity = 0x1BD11BDA;
constexpr std::array<std::array<int, 4>, 2> kRotations{{{13, 15, 26, 6}, {17, 29, 16, 24}}};
constexpr int64_t kWordsInTask = 4096;

constexpr size_t kLanes = 16;  // words that are computed side by side
using Lanes = std::array<uint32_t, kLanes>;

// GCC vectorizes the lanes, as wide as the processor allows.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TPJRT_AS_WIDE_AS_IT_HAS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TPJRT_AS_WIDE_AS_IT_HAS
#endif

// Computes one word for each lane, for the counters from this one on.
TPJRT_AS_WIDE_AS_IT_HAS
void threefry(uint64_t key, uint64_t counter, Lanes& low, Lanes& high) {
  const auto first = static_cast<uint32_t>(key), second = static_cast<uint32_t>(key >> 32);
  const std::array<uint32_t, 3> keys{first, second, first ^ second ^ kParity};
  Lanes x, y;
  for (size_t i = 0; i < kLanes; ++i) {
    x[i] = static_cast<uint32_t>(counter + i) + keys[0];
    y[i] = static_cast<uint32_t>((counter + i) >> 32) + keys[1];
  }
  for (uint32_t round = 1; round <= 5; ++round) {
    for (const int rotation : kRotations[(round - 1) % 2]) {
      for (size_t i = 0; i < kLanes; ++i) {
        x[i] += y[i];
        y[i] = (y[i] << rotation | y[i] >> (32 - rotation)) ^ x[i];
      }
    }
    for (size_t i = 0; i < kLanes; ++i) {
      x[i] += keys[round % 3];
      y[i] += keys[(round + 1) % 3] + round;
    }
  }
  low = x;
  high = y;
}

// Calls f(i, low, high) for each of n words of 64 bits.
template <class F>
void draw_words(RandomState& state, int64_t n, const F& f) {
  const auto [key, counter] = state;
  at::parallel_for(0, n, kWordsInTask, [&, key = key, counter = counter](int64_t begin, int64_t end) {
    Lanes low, high;
    for (int64_t word = begin; word < end; word += kLanes) {
      threefry(key, counter + static_cast<uint64_t>(word), low, high);
      const auto lanes = static_cast<size_t>(std::min<int64_t>(end - word, kLanes));
      for (size_t lane = 0; lane < lanes; ++lane) f(word + static_cast<int64_t>(lane), low[lane], high[lane]);
    }
  });
  state[1] += static_cast<uint64_t>(n);
}

// Calls f(i, bits) for each of n numbers of 32 bits.
template <class F>
void draw(RandomState& state, int64_t n, const F& f) {
  draw_words(state, (n + 1) / 2, [&](int64_t word, uint32_t low, uint32_t high) {
    f(2 * word, low);
    if (2 * word + 1 < n) f(2 * word + 1, high);
  });
}

uint64_t joined(uint32_t low, uint32_t high) { return static_cast<uint64_t>(high) << 32 | low; }

}  // namespace

RandomState random_state_of(uint64_t seed, uint64_t offset) {  // SplitMix64
  uint64_t key = seed + offset * 0x9E3779B97F4A7C15;
  key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9;
  key = (key ^ key >> 27) * 0x94D049BB133111EB;
  return {key ^ key >> 31, 0};
}

at::Generator generator_of(const RandomState& state) { return at::detail::createCPUGenerator(state[0]); }

at::Tensor random_chance(RandomState& state, double probability, c10::IntArrayRef sizes) {
  const double threshold = std::ldexp(probability, 32);
  const auto options = at::TensorOptions(c10::kCPU).dtype(c10::kBool);
  if (threshold >= 0x1p32) return at::ones(sizes, options);
  const auto below = static_cast<uint32_t>(std::max(threshold, 0.0));
  at::Tensor result = at::empty(sizes, options);
  bool* data = result.mutable_data_ptr<bool>();
  draw(state, result.numel(), [&](int64_t i, uint32_t bits) { data[i] = bits < below; });
  return result;
}

at::Tensor random_uniform(RandomState& state, c10::ScalarType dtype, c10::IntArrayRef sizes) {
  if (dtype == c10::kDouble) {
    constexpr int kResolution = 53;
    at::Tensor result = at::empty(sizes, at::TensorOptions(c10::kCPU).dtype(dtype));
    auto* data = result.mutable_data_ptr<double>();
    draw_words(state, result.numel(), [&](int64_t i, uint32_t low, uint32_t high) {
      data[i] = static_cast<double>(joined(low, high) >> (64 - kResolution)) * 0x1p-53;
    });
    return result;
  }
  // Takes as many bits as the dtype distinguishes in [0.5, 1).
  const int resolution = dtype == c10::kHalf ? 11 : dtype == c10::kBFloat16 ? 8 : 24;
  const float unit = std::ldexp(1.0F, -resolution);
  at::Tensor result = at::empty(sizes, at::TensorOptions(c10::kCPU).dtype(c10::kFloat));
  auto* data = result.mutable_data_ptr<float>();
  draw(state, result.numel(),
       [&](int64_t i, uint32_t bits) { data[i] = static_cast<float>(bits >> (32 - resolution)) * unit; });
  return result.to(dtype);
}

at::Tensor random_integers(RandomState& state, int64_t from, uint64_t range, c10::IntArrayRef sizes) {
  at::Tensor result = at::empty(sizes, at::TensorOptions(c10::kCPU).dtype(c10::kLong));
  auto* data = result.mutable_data_ptr<int64_t>();
  const auto put = [&](int64_t i, uint64_t bits) {
    data[i] = static_cast<int64_t>(static_cast<uint64_t>(from) + (range == 0 ? bits : bits % range));
  };
  if (range == 0 || range >= uint64_t{1} << 28) {
    draw_words(state, result.numel(), [&](int64_t i, uint32_t low, uint32_t high) { put(i, joined(low, high)); });
  } else {
    draw(state, result.numel(), put);
  }
  return result;
}

}  // namespace tpjrt::kernels
