// What a graph costs: to compile, to record, and to run. Predicted from its calls and shapes alone, never measured, so that
// the same program takes the same way on every run.
//
// Note [Costs]: each call is of one kind, by its name, and each kind is a row of one table (cost.cpp): what such a call costs
// XLA to compile, and what a run of it takes besides what it does for each element, by a kernel of PyTorch's and within a
// program. Products, convolutions and attention take a time for each multiplication, too. Views take next to nothing; a call
// of lists is as many calls as it has tensors; the layer of a recurrent network as many as it has steps. XLA compiles what
// comes twice in a graph in a part of the time, and a backward of windows, rows or indices takes it several times its forward.
// The sums are within 1.3 of what is measured for the median graph, and within 2 for nine of ten, up to how fast the machine
// is in everything: `./dev bench costs`.
#pragma once

#include <cstdint>

#include "graph/tape/walk.h"

namespace tpjrt::engine {

// In nanoseconds of one processor.
struct Cost {
  int64_t compile = 0;  // of the whole graph
  int64_t record = 0;   // of its calls, with what Python does around them
  int64_t calls = 0;    // of one run call by call: by PyTorch's kernels, or by programs that are there
  int64_t program = 0;  // of one run of its program
};

// Who runs single calls (Note [Tiers]): PyTorch's kernels, on the host's memory or on CUDA's; programs of one call alone; or those of
// them that have paid and the host's kernels, of any graph, or of one that grows.
enum class CallsBy : uint8_t { kKernels, kCudaKernels, kPrograms, kEither, kEitherGrowing };
inline bool are_programs(CallsBy by) { return by != CallsBy::kKernels && by != CallsBy::kCudaKernels; }

Cost predicted_cost(const graph::Walk& walk, CallsBy by);
// Its share of the compile of a graph; of a program of this one call.
int64_t cost_within(const graph::Node& node);
int64_t cost_alone(const graph::Node& node);
// One run of it on a device with a memory of its own: as a program, and by the host's kernel, its copies included.
int64_t cost_launched(const graph::Node& node);
int64_t cost_on_host(const graph::Node& node);

// A call of a few integers (positions, lengths, masks, tokens so far): wherever they are, the host's kernels give what a
// program would, in next to no time. A loop has them in ever new shapes.
bool is_of_few_integers(const graph::Node& node);
// Is it a node of this project itself that makes memory, or reads or writes it (device/tensor/access.cpp)?
bool is_of_memory(const graph::Signature& signature);

}  // namespace tpjrt::engine
