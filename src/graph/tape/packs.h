// Small state in packs: one argument and one result of a program for many tensors that it updates.
//
// Note [Packs]: a buffer that a program takes and gives back costs a plugin about a microsecond, whatever it holds: some ten
// allocations and as many locks. A copy of a few hundred bytes costs a hundredth of that. So where a compiled function
// updates many small tensors on the CPU, as an optimizer's step over biases does, they are copied into packs before the
// program runs and out of them afterwards (CompiledGraph). A pack is one dense vector with its members one after another,
// each in the order of its own memory (Note [Buffers]). In the program's signature packs come after the other leaves, and
// after the other results. A pack has at most 512 bytes: XLA:CPU runs a program in one thread if no buffer has more,
// which small programs are better off with.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

namespace tpjrt::graph {

struct Walk;

struct Pack {
  struct Member {
    uint32_t leaf = 0, result = 0;  // of the walk: the old value and the new one
    int64_t first = 0;              // element of the pack
  };
  c10::ScalarType dtype = c10::kFloat;
  int64_t elements = 0;
  std::vector<Member> members;
};

// Puts what `may_be_packed` says (an entry for each alias of the walk) into packs, where that pays. Those are aliases no more.
void pack(Walk& walk, const std::vector<char>& may_be_packed);

// What a program takes and gives on its own: the places of the walk's leaves (or results) among its arguments (or results);
// -1 for what is in a pack.
std::vector<int64_t> argument_places(const Walk& walk);
std::vector<int64_t> result_places(const Walk& walk);
// How many there are on their own; packs come after these.
int64_t count_of_own(const std::vector<int64_t>& places);

}  // namespace tpjrt::graph
