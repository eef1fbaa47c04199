// Which graphs are run in parts: rounds of a loop, each by the same program (Note [Repeats]), a network and the bookkeeping
// around it (Note [Bookkeeping]), and what is too large for one program.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "engine/cut/bookkeeping.h"
#include "graph/tape/parts.h"

namespace tpjrt::engine {

struct Cut {
  graph::PartOfNode part;  // empty: it is run as one
  const char* cause;
};

class Cuts {
 public:
  // How a graph without a program is cut.
  Cut find(const graph::Walk& walk);

 private:
  Bookkeeping bookkeeping_;
  std::unordered_map<uint64_t, Cut> found_;  // by hash
};

}  // namespace tpjrt::engine
