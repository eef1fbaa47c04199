// Batches that are put together of tensors on the device, other ones in each step.
//
// Note [Batches]: a replay buffer is sampled (`torch.cat(rng.sample(states, 128))`), sentences are padded. Which piece comes
// twice, and which is a view of another, is part of a graph, so each step's would be new: a DQN of three layers took 0.3 s a step.
// So where such batches were seen to differ, a new graph is run in two parts. What only moves the data of leaves is done by
// PyTorch's own kernels on the host, as bookkeeping is (engine/run/interpret.h), and the rest finds a batch that is
// there.
//
// What is known of a batch is its *pattern*: which calls, on which pieces. Where a program's batches are the same in each step it
// has few patterns, and its graphs are compiled as they are.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/tape/parts.h"

namespace tpjrt::engine {

class Batches {
 public:
  // The parts of a graph without a program: batches of changing patterns, and the rest. Empty where it has none.
  graph::PartOfNode find(const graph::Walk& walk);
  // Is the graph nothing but such batches?
  bool is_all(const graph::Walk& walk);

 private:
  // Such batches are the first part, the rest is the second.
  graph::PartOfNode parts_of(const graph::Walk& walk);

  std::unordered_map<uint64_t, std::vector<uint64_t>> patterns_;  // by kind of batch: the first ones
};

}  // namespace tpjrt::engine
