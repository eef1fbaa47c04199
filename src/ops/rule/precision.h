// The precision of float products, from PyTorch's settings (graph/signature.h).
//
// Numeric limits of dtypes.
#pragma once

#include <array>
#include <limits>
#include <string_view>

#include "hlo/type.h"
#include "ops/rule/emit.h"

namespace tpjrt::ops {

// Returns XLA's word for the precision. Only float32 has a choice: by XLA's default GPUs would use TF32, and TPUs one
// pass in bfloat16.
inline std::string_view precision_of(hlo::ElementType element, graph::Precision asked) {
  static constexpr std::array<std::string_view, 3> kWords{"HIGHEST", "HIGH", "DEFAULT"};
  const bool is_float32 = element == hlo::ElementType::kF32 || element == hlo::ElementType::kC64;
  return is_float32 ? kWords[static_cast<size_t>(asked)] : "DEFAULT";
}
inline std::string_view product_precision(const Emit& e, hlo::ElementType element) {
  return precision_of(element, e.precisions().products);
}
inline std::string_view convolution_precision(const Emit& e, hlo::ElementType element) {
  return precision_of(element, e.precisions().convolutions);
}

inline double largest_finite(hlo::ElementType element) {
  switch (element) {
    case hlo::ElementType::kF16: return 65504;
    case hlo::ElementType::kBF16: return 0x1.fep127;
    case hlo::ElementType::kF64: return std::numeric_limits<double>::max();
    default: return std::numeric_limits<float>::max();
  }
}

// Returns the least number above 0 that has full precision.
inline double smallest_normal(hlo::ElementType element) {
  switch (element) {
    case hlo::ElementType::kF16: return 0x1p-14;
    case hlo::ElementType::kF64: return std::numeric_limits<double>::min();
    default: return std::numeric_limits<float>::min();
  }
}

// Returns how many bits a number between 1/2 and 1 has.
inline int mantissa_bits(hlo::ElementType element) {
  switch (element) {
    case hlo::ElementType::kF16: return 11;
    case hlo::ElementType::kBF16: return 8;
    case hlo::ElementType::kF64: return 53;
    default: return 24;
  }
}

}  // namespace tpjrt::ops
