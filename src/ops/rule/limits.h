// Numeric limits of dtypes.
#pragma once

#include <limits>

#include "hlo/type.h"

namespace tpjrt::ops {

// Returns the greatest number that is not infinite.
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
