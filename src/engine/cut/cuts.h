// Graphs that run in parts: iterations of a loop that share one program (Note [Loop rerolling]), a network and the
// integer ops around it (Note [Host-side integer ops]), and graphs too large for one program.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "engine/cut/host_integer_ops.h"
#include "graph/fingerprint/parts.h"

namespace tpjrt::engine {

struct Cut {
  graph::PartOfNode part;  // empty: the graph runs whole
  const char* cause;
};

class Cuts {
 public:
  // Returns how to cut a graph that has no program.
  Cut find(const graph::Walk& walk);

 private:
  HostIntegerOps integer_ops_;
  std::unordered_map<uint64_t, Cut> found_;  // by hash
};

}  // namespace tpjrt::engine
