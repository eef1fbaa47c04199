// The sources of each result of a graph: leaves, and calls with runtime assertions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/lower/module/assertions.h"
#include "graph/fingerprint/walk.h"

namespace tpjrt::engine {

// May outlive the walk that it is made from. Valid for every walk with the same fingerprint.
class Sources {
 public:
  // `calls`: for each assertion of a run, the index of its call in the walk.
  Sources(const graph::Walk& walk, const std::vector<uint32_t>& calls);
  // Makes all results depend on the sources of the result at `place`, too.
  void add_to_all(size_t place);

  // Returns the checks of each result, in the walk's order, if the leaves have the checks `leaves` and `run` has run
  // the graph. Null if nothing is asserted. Settles the run.
  std::vector<ChecksPtr> checks(const std::vector<ChecksPtr>& leaves, const std::shared_ptr<RunChecks>& run) const;

 private:
  using Bits = std::vector<uint64_t>;
  void name_assertions();
  size_t leaves_ = 0, words_ = 0;
  std::vector<Bits> results_;  // leaves, then assertions
  std::shared_ptr<const AssertionOrder> order_;
  // By result; equal lists are shared. Null: none.
  std::vector<std::shared_ptr<const std::vector<uint32_t>>> assertions_;
};

}  // namespace tpjrt::engine
