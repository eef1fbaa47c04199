// A world's backend of torch.distributed: c10d's collectives as ops of the graph.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "device/world/collectives.h"

namespace tpjrt::device::world {

// Of the group of these ranks, rank 0 the first of them.
c10::intrusive_ptr<c10d::Backend> make_backend(std::vector<int64_t> ranks);
// All ranks of the world in groups of its kind, which it has collectives of from now on.
void complete_backend(c10d::Backend& backend, const std::vector<std::vector<int64_t>>& groups);

// The groups of a process group of the world. Throws for one that is not.
Groups groups_of(const std::string& group_name);
Groups groups_of(c10d::ProcessGroup& group);
// Of an all_to_all: the ranks run one program, whose shapes are the same.
void check_equal_parts(const std::vector<int64_t>& sizes);

}  // namespace tpjrt::device::world
