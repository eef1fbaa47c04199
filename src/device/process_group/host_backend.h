// c10d's collectives for tensors of the device and of the host, run by a backend for the host's tensors.
//
// A plugin for CPUs has no collectives between processes, so gloo runs them: each one cuts the graph, moves its
// inputs to the host, waits, and moves its outputs back. If the device computes in the host's memory, inputs are the
// tensors' own memory, and outputs become theirs. (host_collective.h.)
//
// Tensors of the host take the same way, so ranks may pass tensors of either kind, and errors name the ranks of both.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>

#include "device/process_group/late_ranks.h"
#include "device/services/finished_work.h"

namespace tpjrt::device {

// Returns a backend with the group and rank of `host`, which it keeps. Collectives are complete when they return;
// receiving is with wait(). Ctrl-C ends a wait for other ranks, and from then on the group's collectives throw,
// because its ranks are out of step. `attendance`: used to report late ranks; null: they are not reported.
c10::intrusive_ptr<c10d::Backend> make_host_backend(c10::intrusive_ptr<c10d::Backend> host,
                                                    std::shared_ptr<Attendance> attendance = nullptr);
// Returns the backend if it is such a backend; otherwise null.
c10::intrusive_ptr<c10d::Backend> host_of(const c10::intrusive_ptr<c10d::Backend>& backend);
// Gathers in one tensor on one rank, by such a backend. (The class of older versions of PyTorch has no such function.)
WorkPtr gather_single(c10d::Backend& backend, at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& opts);

}  // namespace tpjrt::device
