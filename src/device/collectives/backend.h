// A world's backend of torch.distributed: c10d's collectives as ops of the graph.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "device/collectives/collectives.h"

namespace tpjrt::device::world {

// Returns the backend of the group of these ranks, of which rank 0 is the first.
c10::intrusive_ptr<c10d::Backend> make_backend(std::vector<int64_t> ranks);
// Sets all groups of its kind over the world's ranks, with which its collectives work from now on.
void complete_backend(c10d::Backend& backend, const std::vector<std::vector<int64_t>>& groups);

// Returns the groups of a process group of the world. Throws for another process group.
Groups groups_of(const std::string& group_name);
Groups groups_of(c10d::ProcessGroup& group);
// Throws unless the parts of an all_to_all are equal: all ranks run one program, with one set of shapes.
void check_equal_parts(const std::vector<int64_t>& sizes);

}  // namespace tpjrt::device::world
