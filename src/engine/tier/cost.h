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

#include "graph/fingerprint/walk.h"

namespace tpjrt::engine {

// Nanoseconds on one processor.
struct Cost {
  int64_t compile = 0;  // the whole graph
  int64_t record = 0;   // its calls and the Python code around them
  int64_t calls = 0;    // one interpreted run, by PyTorch's kernels or by existing programs
  int64_t program = 0;  // one run of its program
};

// How the interpreter tier executes ops (Note [Tiers]): by PyTorch's CPU kernels in place, by its CUDA kernels, or by
// its CPU kernels on copies of the values that the graph reads.
enum class InterpretBy : uint8_t { kKernels, kCudaKernels, kCopies };

Cost predicted_cost(const graph::Walk& walk, InterpretBy by);

// Returns true for ops on a few integers (positions, lengths, masks, the tokens so far). The host's kernels compute
// them in next to no time, whatever the device, and loops make them in ever new shapes.
bool is_of_few_integers(const graph::Node& node);
// Returns true for this project's own nodes that allocate, read or write memory (device/tensor/access.cpp).
bool is_of_memory(const graph::Signature& signature);

}  // namespace tpjrt::engine
