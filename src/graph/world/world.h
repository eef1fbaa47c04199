// The number of devices that each tensor of this process has values on.
//
// Recognizes ops that concern several ranks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/signature.h"

namespace tpjrt::graph {

// Note [World]: after init_process_group("pjrt", world_size=N) in one process, a tensor on "pjrt:0" is the local tensor
// of all N ranks: one type, N values. Every program runs on all devices at once, with a replica for each rank, and
// collectives are ops of the graph. 1: an ordinary device. One value for the whole process, set before its client is
// started and then constant.
inline std::atomic<size_t>& world_size() {
  static constinit std::atomic<size_t> size{1};
  return size;
}

inline bool in_world() { return world_size().load(std::memory_order_relaxed) > 1; }

// Returns the name after "pjrt_world::" of this project's world ops (device/collectives/collectives.cpp); nothing for
// other ops.
std::optional<std::string_view> world_op(const Signature& signature);
// Likewise for ops in which ranks communicate.
std::optional<std::string_view> collective(const Signature& signature);
// Returns the op's ranks, group after group.
std::vector<int64_t> ranks_of(const Signature& signature);
// Returns a constant argument by its name.
const c10::IValue& constant(const Signature& signature, std::string_view name);

}  // namespace tpjrt::graph
