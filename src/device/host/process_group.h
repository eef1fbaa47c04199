// c10d's collectives for tensors of the device, done by a backend for the host's.
//
// A plugin for CPUs has no collectives between processes, so they are gloo's: each one cuts the graph, takes what it reads
// to the host, waits, and takes what it wrote back. Where the device computes in the host's memory, what is read is the tensor's
// own memory, and what was written becomes it. Counted, told and refused as whatever runs on the host (host.h).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace tpjrt::device {

// Of the same group and rank as `host`, which it keeps. Collectives are over when they return; receiving ends with wait().
c10::intrusive_ptr<c10d::Backend> make_host_backend(c10::intrusive_ptr<c10d::Backend> host);
// What such a backend was made of; null of any other.
c10::intrusive_ptr<c10d::Backend> host_of(const c10::intrusive_ptr<c10d::Backend>& backend);

}  // namespace tpjrt::device
