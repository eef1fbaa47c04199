// Bookkeeping: small graphs of integers and bools, run by PyTorch's own kernels on the CPU (engine/run/interpret.h).
//
// What a loop keeps books with (positions, lengths, masks, the tokens so far) often has another shape in each round, and
// XLA compiles for each shape: milliseconds for what takes microseconds. So such a graph is run call by call, and compiled
// when it has come back often enough to be worth it. Integers are exact, so nobody can tell from the values.
#pragma once

#include "graph/tape/walk.h"

namespace tpjrt::engine {

// Is it a node of this project itself that makes memory, or reads or writes it (device/tensor/access.cpp)?
bool is_of_memory(const graph::Signature& signature);
// Can this call be run on the host, and take next to no time there?
bool is_bookkeeping(const graph::Node& node);
// The same for all calls of a graph, if they are few.
bool is_bookkeeping(const graph::Walk& walk);

}  // namespace tpjrt::engine
