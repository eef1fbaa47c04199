// Eager mode: every call is run as soon as it is recorded, for debugging. Results, programs and caches are those of lazy
// mode; what fails raises at its own line.
//
// Lazy mode starts a graph that nobody reads at a length well above a training step, so that a loop without a read runs in
// bounded memory. Eager mode is the same with a length of none, and so costs the recorder nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <string>

namespace tpjrt::device {

// TORCH_PJRT_EAGER=1 at the start. For the whole process.
bool eager();
void set_eager(bool on);

// A graph of more nodes is started. Read for each call.
extern std::atomic<uint32_t> most_nodes;
// Runs what is pending for the tensor because its graph has more than most_nodes; in eager mode also waits for it, and
// names `op` where it fails. Not under graph_lock().
void start_long_graph(const at::Tensor& tensor, const std::string& op);

}  // namespace tpjrt::device
