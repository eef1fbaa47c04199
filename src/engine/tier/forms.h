// Graphs that come in ever other sizes.
//
// Note [Growing graphs]: what grows is new each time: a cache, the tokens so far, sentences of other lengths. Compiled when
// first met, each token of a `generate()` costs a program, and none comes back. So of graphs that differ in sizes alone two are
// compiled when they are met, where all graphs are, and the others once they have paid (Note [Tiers]), under any policy but
// `every`. Bookkeeping doesn't count: tokens with and without a new mask are of one form. A graph that is nothing else is
// not compiled before it has paid, either. Where a call is a program, of a device with a memory of its own, the host runs the calls
// from the second graph of a form on (purchases.h): there each would be compiled anew, too.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "graph/tape/walk.h"

namespace tpjrt::engine {

// Is it nothing but calls of a few integers? Hosts do these in next to no time, and whoever reads them waits anyway.
bool is_bookkeeping(const graph::Walk& walk);

// What is equal for graphs whose chosen calls read each other's results and what else there is in the same way, and are the same
// words.
uint64_t hash_of_calls(const graph::Walk& walk, const std::function<bool(const graph::Node&)>& chosen,
                       const std::function<uint64_t(const graph::Node&)>& word);

class Forms {
 public:
  // Takes down a graph without a program. Were so many others of its form met before? 1 or 2. The parts of graphs that are cut are
  // counted by themselves: what whole graphs of the form were met says nothing of what comes back.
  bool grows(const graph::Walk& walk, bool is_part, int others);

 private:
  struct Met {
    uint64_t first, second;  // hashes of graphs; 0: none
  };
  std::unordered_map<uint64_t, Met> met_;  // by form
};

}  // namespace tpjrt::engine
