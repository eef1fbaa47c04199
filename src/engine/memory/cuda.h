// Tensors of PyTorch's CUDA device as arguments and results of compiled functions.
//
// Note [CUDA tensors]: a CUDA plugin computes on the GPU that holds PyTorch's CUDA tensors. So a compiled function uses
// their memory in place, and its results are CUDA tensors over the plugin's memory. Nothing is copied, and the host
// need not wait. PyTorch and the plugin each queue work on their own streams, so three things need order:
//   - Before a call, a stream of the plugin's waits for PyTorch's current stream, and the first argument's buffer is created
//     on it. An execution starts when all its arguments are ready, so it runs after everything that PyTorch has queued. The
//     other arguments' buffers are kept from call to call.
//   - After the call, PyTorch's current stream waits for the results. So PyTorch may free and reuse an argument's memory at
//     any time, as after one of its own kernels. An argument gets its new value by a copy on that stream.
//   - A result's memory returns to the plugin only when the stream that was current at its creation has passed the point at
//     which the last tensor over it was freed. Until then it waits here.
// Streams and events are used through the guard that every backend of PyTorch registers, so nothing links against CUDA.
// The host waits for a plugin without the stream extension. HIP calls itself CUDA in PyTorch.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <memory>

#include "pjrt/client.h"
#include "pjrt/stream.h"

namespace tpjrt::engine::cuda {

// Returns true if the client has PyTorch's devices of this type.
bool is_shared(const pjrt::Client& client, c10::DeviceType type);

// Returns the client's index of `device`. Throws if the client doesn't have it.
size_t device_index(const pjrt::Client& client, c10::Device device);

// XLA's programs need arguments at multiples of this.
inline constexpr size_t kAlignment = 16;

// Returns a stream for new buffers. Executions that use them run after everything that is queued on `device`'s current
// stream.
pjrt::StreamHandle after_current_stream(const pjrt::Client& client, size_t device_index, c10::Device device);

c10::Stream current_stream(c10::Device device);
// Throws if the stream is being captured: the plugin's work would not become part of the graph.
void check_not_captured(const c10::Stream& stream);
// Makes later work on `stream` run after everything that is queued on `other`, of the same device.
void waits_for(const c10::Stream& stream, const c10::Stream& other);

// Makes later work on `device`'s current stream run after `buffer` is computed.
void current_stream_waits(const pjrt::Buffer& buffer, c10::Device device);
void stream_waits(const pjrt::Buffer& buffer, const c10::Stream& stream);

// Returns a storage over a result's memory.
c10::Storage storage_over(std::shared_ptr<pjrt::Buffer> buffer, size_t nbytes, c10::Device device);
// Returns the buffer of memory that storage_over made; null for other memory.
std::shared_ptr<pjrt::Buffer> buffer_under(const c10::DataPtr& memory);

}  // namespace tpjrt::engine::cuda
