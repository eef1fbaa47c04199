// Which graphs are run in parts: rounds of a loop, each by the same program (Note [Repeats]), and what is too large for one.
#pragma once

#include <cstdint>
#include <unordered_map>

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
  std::unordered_map<uint64_t, Cut> found_;  // by hash
};

}  // namespace tpjrt::engine
