// Which graphs are run in parts, and why.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "engine/cut/batch.h"
#include "engine/cut/growth.h"
#include "engine/cut/variety.h"
#include "graph/tape/parts.h"

namespace tpjrt::engine {

struct Cut {
  graph::PartOfNode part;
  const char* cause;
  uint32_t left = UINT32_MAX;  // how often it is run so before it is compiled as one
};

class Cuts {
 public:
  // How a graph without a program is cut; nothing: it is compiled as one. `may_interpret`: calls may be run on the host.
  // `is_found_again`: was a graph of that hash run more than once?
  std::optional<Cut> find(const graph::Walk& walk, bool may_interpret,
                          const std::function<bool(uint64_t)>& is_found_again);
  // The same where a graph that comes back is compiled as one wherever that can be: rounds of a loop, and what is too large.
  static graph::PartOfNode find_needed(const graph::Walk& walk);
  // Is the graph a batch that is not worth compiling?
  bool is_batch(const graph::Walk& walk) { return batches_.is_all(walk); }

 private:
  Batches batches_;
  Growth growth_;
  Variety variety_;
  std::unordered_map<uint64_t, Cut> cuts_;  // by hash, of those that will be cut the same way when they come again
};

}  // namespace tpjrt::engine
