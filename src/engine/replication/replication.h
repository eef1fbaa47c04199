// Replication analysis: which ranks of a world are known to have equal values of a result.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/session/session.h"
#include "graph/fingerprint/walk.h"

namespace tpjrt::engine {

// Note [Replication analysis]: a read of a value that all ranks share returns it as one tensor; a read of any other
// would return the first rank's alone. So a leaf of a world has, for each rank, a class of ranks with equal values, or
// null if all ranks are in one class. Programs compute alike on all devices: ranks whose operands agree have results
// that agree. Constants of each rank (pjrt_world::per_rank) separate ranks, and collectives join them again. Ranks of
// different classes may be equal all the same. If somebody promises that they are (pjrt_world::promised_equal), as
// DTensor does for replicas, a read compares the bytes.
using Classes = std::vector<uint32_t>;
using Replication = std::shared_ptr<const Classes>;

// One class of all ranks that holds only if the ranks' values confirm it.
const Replication& promised();
inline bool is_promised(const Replication& replication) { return replication == promised(); }

// Computes how a graph's results agree from how its leaves do. May outlive the walk that it is made from.
class ReplicationAnalysis {
 public:
  explicit ReplicationAnalysis(const graph::Walk& walk);
  // Returns the replication of each of the walk's results, in order.
  std::vector<Replication> results(const std::vector<Replication>& leaves) const;

 private:
  struct Place {
    bool is_leaf;
    uint32_t index;
  };
  struct Step {
    graph::SignaturePtr signature;
    uint32_t first_operand, end_operand;  // indices into operands_
  };
  static Place place_of(const graph::Value& value);

  std::vector<Step> steps_;
  std::vector<Place> operands_, results_;
};

// Returns the replication of each of a walk's results, from the replications stored in its leaves.
std::vector<Replication> replications(const graph::Walk& walk);

}  // namespace tpjrt::engine
