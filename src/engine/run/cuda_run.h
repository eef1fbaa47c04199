// One run by calls of PyTorch's CUDA kernels: its operands over the plugin's memory, and buffers over its results.
//
// Note [Calls on CUDA]: Where PyTorch has kernels for the GPU that the plugin computes on, calls are run by them, as they are by
// its CPU kernels on the CPU. Nothing is copied, and nobody waits on the host. A leaf's memory is of one of two owners:
//   - The plugin's. The current stream waits until it is computed. The tensor over it, and with it the buffer, is let go
//     as a result of a compiled call is: when the stream has passed that point (Note [CUDA tensors]).
//   - PyTorch's, what a kernel made. Its buffer is a view, made after the current stream at the end of the run, so that
//     whatever the plugin does with it, runs after the kernels. The tensor lives as long as the view. PyTorch gives such
//     memory out again in the order of the stream that it was made on: that stream waits for each program that took it
//     (Launch::lenders) and for other streams' kernels that did. It is never donated to a program.
// Kernels write over PyTorch's memory alone, where nobody reads it afterwards, and where they are queued on its stream.
// Where PyTorch lacks memory the graph is compiled instead: the plugin may have some, and says which line asked for the most.
// A graph of which a product was recorded under another precision than PyTorch is set to by now is compiled, too.
// A kernel that is given an index out of range ends all that the process does on the GPU. So what a program checks is a program,
// and what draws random numbers, as CUDA's are others.
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

namespace tpjrt::engine {

// PyTorch's CUDA device that is the client's number `device`, where it has kernels for it.
std::optional<c10::Device> cuda_device(const pjrt::Client& client, size_t device);

class CudaRun {
 public:
  CudaRun(pjrt::Client& client, size_t device, c10::Device cuda);
  CudaRun(const CudaRun&) = delete;
  CudaRun& operator=(const CudaRun&) = delete;
  // What it has read of other streams' memory, they wait for.
  ~CudaRun();

  // A leaf's values, for what is queued on the current stream from now on.
  at::Tensor tensor(const graph::NodePtr& leaf);
  // May kernels write there? Then the leaf has no value from now on, and only the caller has the tensor.
  bool take(const graph::NodePtr& leaf);
  // Has a leaf been taken, so that this run can't be left?
  bool took() const { return took_; }
  // A leaf for a program, of the tensor as it is now; the tensor is kept as long as it.
  graph::NodePtr lend(const at::Tensor& dense);
  // A program's result, likewise for what is queued from now on.
  at::Tensor result(graph::TypePtr form, std::shared_ptr<pjrt::Buffer> buffer);
  // A result's data, which nobody else has. Called when nothing more is queued.
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
  std::optional<pjrt::StreamHandle> order_;  // of all results
  std::vector<c10::Stream> others_;          // whose memory was read
};

}  // namespace tpjrt::engine
