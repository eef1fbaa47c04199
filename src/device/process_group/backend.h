// Collectives between processes that share a client: one program each, which every process of the group runs.
//
// For plugins for GPUs, whose runtime connects the processes. Each rank reads on its own, so ranks may read at
// different times. A graph's extent then differs by rank, and a collective within it would wait for one that other
// ranks run in another program. Therefore each collective is a program of its own, equal on all ranks, started where
// it is called, in the program's order, as on other GPU backends. Its values never come to the host. Collectives that
// name single ranks (send, reduce, gather, parts of different sizes) go through the host.
//
// A captured step is one program of all processes, including its collectives: it is read only from outside. All
// processes must capture the same step, which is compared before it first runs
// (engine/compiled_call/compiled_graph.cpp).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <memory>
#include <vector>

#include "device/process_group/late_ranks.h"

namespace tpjrt::device::processes {

// Returns the backend for the group of these ranks, which are processes (pjrt::Node::id). `host`: its backend for the
// host's tensors. `attendance`: see make_host_backend.
c10::intrusive_ptr<c10d::Backend> make_backend(const std::vector<int64_t>& ranks,
                                               c10::intrusive_ptr<c10d::Backend> host,
                                               std::shared_ptr<Attendance> attendance = nullptr);
// Sets the groups of this one's kind over all processes, for its collectives in a captured step.
void complete_backend(c10d::Backend& backend, const std::vector<std::vector<int64_t>>& groups);

// Returns the backend for the host's tensors of this one: one of host_backend.h, which is its own; null for any other.
c10::intrusive_ptr<c10d::Backend> host_of(const c10::intrusive_ptr<c10d::Backend>& backend);

}  // namespace tpjrt::device::processes
