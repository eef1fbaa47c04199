// Long graphs without a read are started; in eager mode every graph is long.
//
// In eager mode every call runs as soon as it is recorded, for debugging. Results, programs and caches are those of
// lazy mode; errors are raised at their own lines. Lazy mode starts a graph that is not read at a length well above a
// training step, so that a loop without reads has bounded memory. Eager mode is the same with length zero, and so costs
// the recorder nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace tpjrt::device {

// Whether eager mode is on, for the whole process; initially on if TORCH_PJRT_EAGER=1.
bool eager();
void set_eager(bool on);

// Graphs of more nodes are started. Read for each call.
extern std::atomic<uint32_t> most_nodes;
// Runs the tensor's pending work because its graph has more than most_nodes nodes. In eager mode it also waits, and
// names `op` in errors. Not under graph_lock().
void start_long_graph(const at::Tensor& tensor, const std::string& op);

}  // namespace tpjrt::device
