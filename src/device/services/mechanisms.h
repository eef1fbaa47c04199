// The mechanisms that decide when recorded calls run, and in which parts, beside reads and the tiers of graphs.
//
// `./dev bench mechanisms` has a row for each that gets worse without it.
#pragma once

#include <cstdint>

namespace tpjrt::device {

enum class Mechanism : uint8_t {
  kLoopIterations,         // Note [Loop iterations]: places that move or read data
  kStepsBesideOptimizers,  // likewise: the ends of optimizers' steps
  kEagerFastPath,          // Note [Eager fast path]
  kLoopRerolling,          // Note [Loop rerolling]
};

// Returns false for those that TORCH_PJRT_WITHOUT names, in the words above ("loop_rerolling,eager_fast_path").
bool is_on(Mechanism mechanism);

}  // namespace tpjrt::device
