// Tensors of PyTorch's own CUDA device, as arguments and results of compiled functions.
//
// Note [CUDA tensors]: A plugin for CUDA computes on the GPU where PyTorch's CUDA tensors lie, so a compiled function
// takes their memory where it is, and what it gives are CUDA tensors over the plugin's memory. Nothing is copied, and
// nobody waits on the host; three things need order, as PyTorch and the plugin each queue work on streams of their own:
//   - Before a call, a stream of the plugin's waits for PyTorch's current stream, and the first argument's buffer is made
//     with it. An execution runs after all its arguments are ready, so it runs after all that PyTorch has queued. The
//     other arguments' buffers are kept from call to call.
//   - After it, PyTorch's current stream waits for the results. So PyTorch may free and reuse an argument's memory when
//     it likes, as after a kernel of its own, and an argument gets its new value by a copy on that stream.
//   - A result's memory is the plugin's again only when the stream that was current when it was made has passed the
//     point at which the last tensor over it died. Until then it waits here.
// Streams and events are reached through the guard that every backend of PyTorch registers, so nothing of CUDA's is
// linked. A plugin without the stream extension is waited for on the host. HIP calls itself CUDA in PyTorch.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <memory>

#include "pjrt/client.h"

namespace tpjrt::engine::cuda {

// Are PyTorch's devices of this type the client's, too?
bool is_shared(const pjrt::Client& client, c10::DeviceType type);

// The client's device that `device` is. Throws where the client has none.
size_t device_index(const pjrt::Client& client, c10::Device device);

// XLA's programs read arguments at multiples of this.
inline constexpr size_t kAlignment = 16;

// What is made with it, is used by executions after all that `device`'s current stream holds by now.
pjrt::StreamHandle after_current_stream(const pjrt::Client& client, size_t device_index, c10::Device device);

c10::Stream current_stream(c10::Device device);
// Throws where it is captured: what we do there would not be part of the graph.
void check_not_captured(const c10::Stream& stream);
// What `stream` gets from now on runs after all that `other` holds by now, of the same device.
void waits_for(const c10::Stream& stream, const c10::Stream& other);

// What `device`'s current stream gets from now on runs after `buffer` is computed.
void current_stream_waits(const pjrt::Buffer& buffer, c10::Device device);
void stream_waits(const pjrt::Buffer& buffer, const c10::Stream& stream);

// A storage over a result's memory.
c10::Storage storage_over(std::shared_ptr<pjrt::Buffer> buffer, size_t nbytes, c10::Device device);
// The buffer whose memory that is, where storage_over made it; else null.
std::shared_ptr<pjrt::Buffer> buffer_under(const c10::DataPtr& memory);

}  // namespace tpjrt::engine::cuda
