// What dtypes can hold.
#pragma once

#include <limits>

#include "hlo/type.h"

namespace tpjrt::ops {

inline double largest_finite(hlo::ElementType element) {
  switch (element) {
    case hlo::ElementType::kF16: return 65504;
    case hlo::ElementType::kBF16: return 0x1.fep127;
    case hlo::ElementType::kF64: return std::numeric_limits<double>::max();
    default: return std::numeric_limits<float>::max();
  }
}

}  // namespace tpjrt::ops
