// c10d's collectives for tensors of the device, done by a backend for the host's.
//
// A plugin for CPUs has no collectives between processes, so they are gloo's: each one cuts the graph, takes what it reads
// to the host, waits, and takes what it wrote back. Counted, told and refused as whatever runs on the host (host.h).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace tpjrt::device {

// Of the same group and rank as `host`, which it keeps. Collectives are over when they return; receiving ends with wait().
c10::intrusive_ptr<c10d::Backend> make_host_backend(c10::intrusive_ptr<c10d::Backend> host);

}  // namespace tpjrt::device
