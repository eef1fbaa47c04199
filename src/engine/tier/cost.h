// What a graph costs: to compile, and to run call by call. Predicted from its calls and shapes alone, never measured, so that
// the same program takes the same way on every run.
#pragma once

#include <cstdint>

#include "graph/tape/walk.h"

namespace tpjrt::engine {

struct Cost {
  int64_t compile_ns = 0, by_calls_ns = 0;
};

Cost predicted_cost(const graph::Walk& walk);

}  // namespace tpjrt::engine
