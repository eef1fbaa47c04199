// How exactly products of float32 are computed: PyTorch's settings, on devices that have a choice.
#pragma once

#include <atomic>
#include <cstdint>

namespace tpjrt::graph {

// XLA's words. On a GPU the latter two are TF32, on a TPU they are three passes in bfloat16 and one.
enum class Precision : uint8_t { kHighest, kHigh, kDefault };

struct Precisions {
  Precision products = Precision::kHighest, convolutions = Precision::kHighest;
};

// Whose settings hold. A CPU has no choice, and nothing is asked.
enum class PrecisionSettings : uint8_t { kNone, kCuda, kOther };

// For the whole process, which has one plugin; set when its client is made, before the first call is recorded.
inline std::atomic<PrecisionSettings>& precision_settings() {
  static constinit std::atomic<PrecisionSettings> settings{PrecisionSettings::kNone};
  return settings;
}

}  // namespace tpjrt::graph
