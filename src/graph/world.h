// A world: several devices of one process that compute as the ranks of torch.distributed.
//
// Note [World]: after init_process_group("pjrt", world_size=N) in one process, a tensor on "pjrt:0" is the local tensor
// of all N ranks: one type, N values. Every program runs on all devices at once, with a replica for each rank, and
// collectives are ops of the graph.
#pragma once

#include <atomic>
#include <cstddef>

namespace tpjrt::graph {

// The number of ranks; 1: an ordinary device. One value for the whole process, set before its client is started and
// then constant.
inline std::atomic<size_t>& world_size() {
  static constinit std::atomic<size_t> size{1};
  return size;
}

inline bool in_world() { return world_size().load(std::memory_order_relaxed) > 1; }

}  // namespace tpjrt::graph
