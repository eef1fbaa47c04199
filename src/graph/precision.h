// The precision of float32 products: PyTorch's settings, on devices that have a choice.
#pragma once

#include <atomic>
#include <cstdint>

namespace tpjrt::graph {

// XLA's names. On a GPU the latter two are TF32; on a TPU they are three passes in bfloat16, and one.
enum class Precision : uint8_t { kHighest, kHigh, kDefault };

struct Precisions {
  Precision products = Precision::kHighest, convolutions = Precision::kHighest;
};

// Whose settings apply. A CPU has no choice, so no settings are read.
enum class PrecisionSettings : uint8_t { kNone, kCuda, kOther };

// One value for the whole process, which has one plugin. Set when its client is created, before the first call is
// recorded.
inline std::atomic<PrecisionSettings>& precision_settings() {
  static constinit std::atomic<PrecisionSettings> settings{PrecisionSettings::kNone};
  return settings;
}

}  // namespace tpjrt::graph
