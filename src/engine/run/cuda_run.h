// One interpreted run with PyTorch's CUDA kernels: its operands over the plugin's memory, and buffers over its results.
//
// Note [Interpreter tier on CUDA]: if PyTorch has kernels for the plugin's GPU, they run calls as its CPU kernels do on
// the CPU. Nothing is copied, and the host doesn't wait. A leaf's memory has one of two owners:
//   - The plugin. The current stream waits until the memory is computed. The tensor over it, and with it the buffer, is
//     released like a result of a compiled call: when the stream has passed that point (Note [CUDA tensors]).
//   - PyTorch, for results of kernels. The buffer is a view, created on the current stream at the end of the run, so
//     that the plugin uses it only after the kernels. The tensor lives as long as the view. PyTorch reuses such memory
//     in the order of the stream that allocated it: that stream waits for each program that took the memory
//     (Launch::lenders), and for other streams' kernels that did. It is never donated to a program.
// Kernels overwrite only PyTorch's memory, and only if nobody reads it afterwards and they are queued on its stream. If
// PyTorch lacks memory, the graph is compiled instead: the plugin may have some, and names the line that needs the
// most. A graph is also compiled if one of its products was recorded with another precision than PyTorch's current
// setting. A CUDA kernel that gets an index out of range ends all GPU work of the process. So ops with runtime
// assertions are programs, and so are random ops, because CUDA's numbers differ.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <vector>

#include "engine/memory/device_data.h"
#include "graph/node.h"
#include "pjrt/client.h"
#include "pjrt/stream.h"

namespace tpjrt::engine {

// Returns PyTorch's CUDA device that is the client's number `device`, if PyTorch has kernels for it.
std::optional<c10::Device> cuda_device(const pjrt::Client& client, size_t device);

class CudaRun {
 public:
  CudaRun(pjrt::Client& client, size_t device, c10::Device cuda);
  CudaRun(const CudaRun&) = delete;
  CudaRun& operator=(const CudaRun&) = delete;
  // Makes the streams whose memory was read wait for this run.
  ~CudaRun();

  // Returns a leaf's values, for work that is queued on the current stream from now on.
  at::Tensor tensor(const graph::NodePtr& leaf);
  // Returns true if kernels may overwrite the leaf. It then has no value any more, and only the caller has the tensor.
  bool take(const graph::NodePtr& leaf);
  // Returns true if a leaf was taken, so that the run can't be abandoned.
  bool took() const { return took_; }
  // Returns a leaf for a program that holds the tensor's current values. It keeps the tensor alive.
  graph::NodePtr lend(const at::Tensor& dense);
  // Returns a program's result, likewise for work that is queued from now on.
  at::Tensor result(graph::TypePtr form, std::shared_ptr<pjrt::Buffer> buffer);
  // Returns the data of a result that nobody else holds. Called when nothing more is queued.
  std::shared_ptr<DeviceData> keep(at::Tensor result, const std::shared_ptr<const pjrt::BufferType>& type);

 private:
  std::shared_ptr<pjrt::Buffer> view(const at::Tensor& tensor, const std::shared_ptr<const pjrt::BufferType>& type,
                                     pjrt::StreamHandle order);

  pjrt::Client& client_;
  const size_t device_;
  const c10::Device cuda_;
  const c10::DeviceGuard guard_;
  const c10::Stream stream_;
  bool took_ = false;
  std::optional<pjrt::StreamHandle> order_;  // shared by all results
  std::vector<c10::Stream> others_;          // streams whose memory was read
};

}  // namespace tpjrt::engine
