// Which ranks of a world are known to have equal values of a result.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "graph/tape/walk.h"

namespace tpjrt::engine {

// Note [Agreement]: a value that all ranks share may be read as one number; of others a read would be the first rank's alone. So a
// leaf of a world says, for each rank, a class of ranks that have the same value: null, where all are of one. Programs run
// alike on all devices: ranks whose operands agree have results that agree. What tells them apart are constants of each rank
// (pjrt_world::per_rank), and what joins them again are collectives. Ranks of different classes may be equal all the same: where
// somebody promises that they are (pjrt_world::promised_equal), as DTensor does of replicas, whoever reads compares the bytes.
using Classes = std::vector<uint32_t>;
using Agreement = std::shared_ptr<const Classes>;

// One class of all ranks, which the ranks' values themselves have to confirm.
const Agreement& promised();
inline bool is_promised(const Agreement& agreement) { return agreement == promised(); }

// How a graph's results agree, by how its leaves do. Outlives the walk that it is made of.
class AgreementFlow {
 public:
  explicit AgreementFlow(const graph::Walk& walk);
  // Of the walk's results, in their order.
  std::vector<Agreement> results(const std::vector<Agreement>& leaves) const;

 private:
  struct Place {
    bool is_leaf;
    uint32_t index;
  };
  struct Step {
    graph::SignaturePtr signature;
    uint32_t first_operand, end_operand;  // into operands_
  };
  static Place place_of(const graph::Value& value);

  std::vector<Step> steps_;
  std::vector<Place> operands_, results_;
};

// Of a walk's results, by what its leaves say of themselves.
std::vector<Agreement> agreements(const graph::Walk& walk);

}  // namespace tpjrt::engine
