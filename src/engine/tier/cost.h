// The predicted cost of compiling, recording and running a graph. Predictions depend on calls and shapes alone and
// never on measurements, so that a script takes the same decisions in every run.
//
// Note [Costs]: each call is of one kind, by its name, and each kind is a row of one table (cost.cpp). A row has XLA's
// compile time for such a call, and the time of a run by PyTorch's kernel and within a program, as a constant and a
// cost for each element. Products, convolutions and attention also have a cost for each multiplication. Views cost next
// to nothing. A call on lists counts as one call for each tensor, and a recurrent layer as one for each step. XLA
// compiles repeated calls in a fraction of the time, and the backward of windows, rows or indices takes it several
// times its forward. The sums are within 1.3 of measured times for the median graph and within 2 for nine of ten, apart
// from the overall speed of the machine: `./dev bench costs`.
#pragma once

#include <cstdint>

#include "graph/tape/walk.h"

namespace tpjrt::engine {

// Nanoseconds on one processor.
struct Cost {
  int64_t compile = 0;  // the whole graph
  int64_t record = 0;   // its calls and the Python code around them
  int64_t calls = 0;    // one interpreted run, by PyTorch's kernels or by existing programs
  int64_t program = 0;  // one run of its program
};

// How the interpreter tier executes one op (Note [Tiers]): a PyTorch CPU kernel, a PyTorch CUDA kernel, or a compiled
// single-op program. kEither chooses between amortized single-op programs and host kernels, kEitherGrowing likewise for
// a graph that grows.
enum class CallsBy : uint8_t { kKernels, kCudaKernels, kPrograms, kEither, kEitherGrowing };
inline bool are_programs(CallsBy by) { return by != CallsBy::kKernels && by != CallsBy::kCudaKernels; }

Cost predicted_cost(const graph::Walk& walk, CallsBy by);
// The call's share of its graph's compile time, and the compile time of a program of this call alone.
int64_t cost_within(const graph::Node& node);
int64_t cost_alone(const graph::Node& node);
// The time of one run on a device with its own memory: as a program, and by the host's kernel with its copies.
int64_t cost_launched(const graph::Node& node);
int64_t cost_on_host(const graph::Node& node);

// Returns true for ops on a few integers (positions, lengths, masks, the tokens so far). The host's kernels compute
// them in next to no time, whatever the device, and loops make them in ever new shapes.
bool is_of_few_integers(const graph::Node& node);
// Returns true for this project's own nodes that allocate, read or write memory (device/tensor/access.cpp).
bool is_of_memory(const graph::Signature& signature);

}  // namespace tpjrt::engine
