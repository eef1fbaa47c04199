// Orders a plugin's work and work on other streams of the same platform, such as CUDA's, through PJRT's stream
// extension. It is experimental, not part of pjrt_c_api.h, and optional.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tpjrt::pjrt {

class Buffer;
class Client;

using StreamHandle = intptr_t;  // the platform's own, such as a cudaStream_t

// Returns a stream of the plugin: a buffer that Client::view_of_device_memory creates on it is ready once the work
// queued on it before is done. The plugin has a few for each device and returns them in turn. Nothing: it has none.
std::optional<StreamHandle> plugin_stream(const Client& client, size_t device_index);

// Makes later work on `stream` run after the buffer is computed. May block until that computation is queued itself.
// Throws its failure, if known. Returns false, without effect, if the plugin can't do this.
bool wait_on_stream(const Buffer& buffer, StreamHandle stream);

}  // namespace tpjrt::pjrt
