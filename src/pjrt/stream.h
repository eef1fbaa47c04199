// Order between a plugin's work and what others queue on streams of the same platform, such as CUDA's: PJRT's stream
// extension, which is experimental and no part of pjrt_c_api.h. A plugin may have it or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "pjrt/api/api.h"

namespace tpjrt::pjrt {

class Buffer;
class Client;

using StreamHandle = intptr_t;  // the platform's own, such as a cudaStream_t

// A stream of the plugin's own: a buffer that Client::view_of_device_memory makes with it is ready once what was queued
// on it before is done. The plugin has a few of them for each device and gives them in turn. Nothing: it has none.
std::optional<StreamHandle> plugin_stream(const Client& client, size_t device_index);

// What is queued on `stream` from now on runs after the buffer is computed. May block until that computation is queued
// itself. Throws what it failed with, if that is known. False: the plugin can't, and nothing has happened.
bool wait_on_stream(const Buffer& buffer, StreamHandle stream);

}  // namespace tpjrt::pjrt
