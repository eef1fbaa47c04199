// Flattened state: one argument and one result of a program for many small tensors that it updates.
//
// Note [Flattened state]: a buffer that a program takes and returns costs a plugin about a microsecond whatever its
// size: about ten allocations and as many locks. Copying a few hundred bytes costs a hundredth of that. So if a
// compiled function updates many small tensors on the CPU, as an optimizer does with biases, they are copied into
// flattened states before the program runs and out of them afterwards (CompiledGraph). A flattened state is a dense
// vector of its members, one after another, each in its own memory order (Note [Buffers]). In the program's signature,
// flattened states follow the other leaves and the other results. A flattened state has at most 512 bytes: XLA:CPU runs
// a program in one thread if no buffer is larger, which is faster for small programs.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

namespace tpjrt::graph {

struct Walk;

struct FlattenedState {
  struct Member {
    uint32_t leaf = 0, result = 0;  // in the walk: the old value and the new one
    int64_t first = 0;              // first element in the flattened state
  };
  c10::ScalarType dtype = c10::kFloat;
  int64_t elements = 0;
  std::vector<Member> members;
};

// Moves aliases into flattened states if that pays. `may_be_flattened` has an entry for each alias of the walk.
void flatten_state(Walk& walk, const std::vector<char>& may_be_flattened);

// Returns the index of each of the walk's leaves (or results) among the program's arguments (or results); -1 for
// members of flattened states.
std::vector<int64_t> argument_places(const Walk& walk);
std::vector<int64_t> result_places(const Walk& walk);
// The number of places other than -1; flattened states come after these.
int64_t count_of_own(const std::vector<int64_t>& places);

}  // namespace tpjrt::graph
