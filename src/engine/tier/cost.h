// What a graph costs: to compile, and to run call by call. Predicted from its calls and shapes alone, never measured, so that
// the same program takes the same way on every run.
#pragma once

#include <cstdint>

#include "graph/tape/walk.h"

namespace tpjrt::engine {

// In nanoseconds.
struct Cost {
  int64_t compile = 0;  // of the whole graph
  int64_t calls = 0;    // of one run call by call: by PyTorch's kernels, or by programs that are there
};

// Who runs single calls: PyTorch's kernels, on the host's memory, or programs of one call (Note [Tiers]).
enum class CallsBy : uint8_t { kKernels, kPrograms };

// What the costs are made of.
struct Work {
  int64_t light_calls = 0, heavy_calls = 0;
  double bytes = 0, flops = 0;
};
Work work(const graph::Walk& walk);

Cost predicted_cost(const graph::Walk& walk, CallsBy by);
// Its share of the compile of a graph; of a program of this one call.
int64_t cost_within(const graph::Node& node);
int64_t cost_alone(const graph::Node& node);

// A call of a few integers (positions, lengths, masks, tokens so far): wherever they are, the host's kernels give what a
// program would, in next to no time. A loop has them in ever new shapes.
bool is_of_few_integers(const graph::Node& node);
// Is it a node of this project itself that makes memory, or reads or writes it (device/tensor/access.cpp)?
bool is_of_memory(const graph::Signature& signature);

}  // namespace tpjrt::engine
