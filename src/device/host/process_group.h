// c10d's collectives for tensors of the device, done by a backend for the host's.
//
// A plugin for CPUs has no collectives between processes, so they are gloo's: each one cuts the graph, takes what it reads
// to the host, waits, and takes what it wrote back. Where the device computes in the host's memory, what is read is the tensor's
// own memory, and what was written becomes it. Counted, told and refused as whatever runs on the host (host.h).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>

#include "device/host/late_ranks.h"

namespace tpjrt::device {

// Of the same group and rank as `host`, which it keeps. Collectives are over when they return; receiving ends with wait().
// Ctrl-C ends a wait for other ranks, and from then on the group's collectives raise: its ranks are out of step. `attendance`: by
// which those that are late are told; null: they are not.
c10::intrusive_ptr<c10d::Backend> make_host_backend(c10::intrusive_ptr<c10d::Backend> host,
                                                    std::shared_ptr<Attendance> attendance = nullptr);
// What such a backend was made of; null of any other.
c10::intrusive_ptr<c10d::Backend> host_of(const c10::intrusive_ptr<c10d::Backend>& backend);

}  // namespace tpjrt::device
