// How a program takes a number of its graph: as a constant, or as an argument (Note [Values that vary]).
#pragma once

#include <cstddef>

#include "graph/number.h"

namespace tpjrt::engine {

struct NumberSlot {
  graph::Number constant;  // when not promoted
  bool promoted = false;
  bool pinned = false;
};

// The promoted numbers of a graph are its program's last arguments: f64, then s64, in packs of so many, the last ones
// shorter. (XLA:CPU runs a program in one thread if no buffer has more than 512 bytes, which small programs are better off
// with.)
inline constexpr size_t kNumbersInPack = 64;

}  // namespace tpjrt::engine
