// Collectives between processes that have a client together: one program each, which every process of the group runs.
//
// Of a plugin for GPUs, whose runtime connects the processes. What a rank reads is its own, so ranks may read at different
// times: a graph's extent then differs by rank, and a collective within it would wait for one that the others run elsewhere.
// So each is a program of its own, the same on all, started where it is called, in the program's order, as on other GPU backends. Its
// values never come to the host. What names single ranks (send, reduce, gather, parts of different sizes) goes by way of the host.
//
// A captured step is one program of all processes, collectives and all: what it reads is read outside of it. So all have to capture the
// same step, which is compared before it first runs (engine/call/compile_trace.cpp).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <memory>
#include <vector>

#include "device/host/late_ranks.h"

namespace tpjrt::device::processes {

// Of the group of these ranks, which are processes (pjrt::Node::id); `host`, its backend for the host's tensors; `attendance`, as of
// make_host_backend.
c10::intrusive_ptr<c10d::Backend> make_backend(const std::vector<int64_t>& ranks,
                                               c10::intrusive_ptr<c10d::Backend> host,
                                               std::shared_ptr<Attendance> attendance = nullptr);
// All processes in groups of this one's kind: what its collectives are in a captured step.
void complete_backend(c10d::Backend& backend, const std::vector<std::vector<int64_t>>& groups);

// A backend for the host's tensors that this one, or one of device/host/process_group.h, was made of; null of any other.
c10::intrusive_ptr<c10d::Backend> host_of(const c10::intrusive_ptr<c10d::Backend>& backend);

}  // namespace tpjrt::device::processes
