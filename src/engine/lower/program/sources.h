// The sources of each result of a graph: which leaves, and which calls that require something of their data.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/lower/program/requirements.h"
#include "graph/tape/walk.h"

namespace tpjrt::engine {

// Outlives the walk that it is made of, and holds for every walk with the same tape.
class Sources {
 public:
  // `calls`: of each requirement of a run, the call (its place in the walk) whose it is.
  Sources(const graph::Walk& walk, const std::vector<uint32_t>& calls);
  // From here on all results rest on what the one at `place` rests on, too.
  void add_to_all(size_t place);

  // What each result rests on, in the walk's order, where leaves rest on `leaves` and `run` has run the graph. Null where nothing
  // requires anything. Settles the run.
  std::vector<ChecksPtr> checks(const std::vector<ChecksPtr>& leaves, const std::shared_ptr<RunChecks>& run) const;

 private:
  using Bits = std::vector<uint64_t>;
  void name_requirements();
  size_t leaves_ = 0, words_ = 0;
  std::vector<Bits> results_;  // leaves, then requirements
  std::shared_ptr<const RequirementOrder> order_;
  // By result; equal ones are one. Null: none.
  std::vector<std::shared_ptr<const std::vector<uint32_t>>> requirements_;
};

}  // namespace tpjrt::engine
