// The form of a graph's scalar in its program: a constant, or an argument (Note [Values that vary]).
#pragma once

#include <cstddef>

#include "graph/scalar_value.h"

namespace tpjrt::engine {

struct ScalarSlot {
  graph::ScalarValue constant;  // unless promoted
  bool promoted = false;
  bool pinned = false;
};

// Promoted scalars are the program's last arguments: f64, then s64, in vectors of this size, the last ones shorter.
// XLA:CPU runs a program in one thread if no buffer exceeds 512 bytes, which is faster for small programs.
inline constexpr size_t kScalarsInVector = 64;

}  // namespace tpjrt::engine
