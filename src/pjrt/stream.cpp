// Calls the functions of PJRT's stream extension.
#include "pjrt/stream.h"

#include "pjrt/api/api.h"
#include "pjrt/buffer.h"
#include "pjrt/client.h"

namespace tpjrt::pjrt {

namespace {

// Declarations of PJRT's pjrt_c_api_stream_extension.h, which is missing from xla-cpu-pjrt's wheel.
constexpr int kStreamExtension = 3;  // PJRT_Extension_Type_Stream
struct GetStreamArgs {
  size_t struct_size = sizeof(GetStreamArgs);
  PJRT_Device* device = nullptr;
  StreamHandle stream = 0;  // out
};
struct WaitArgs {
  size_t struct_size = sizeof(WaitArgs);
  StreamHandle stream = 0;
  PJRT_Buffer* buffer = nullptr;
};
struct StreamExtension {
  PJRT_Extension_Base base;
  PJRT_Error* (*get_stream)(GetStreamArgs*);
  PJRT_Error* (*wait)(WaitArgs*);
};

const StreamExtension* extension_of(const Api& api) {
  const PJRT_Extension_Base* base = api.extension(kStreamExtension);
  return base && base->struct_size >= sizeof(StreamExtension) ? reinterpret_cast<const StreamExtension*>(base)
                                                              : nullptr;
}

// Calls a function. Returns false if the plugin doesn't have it.
template <class Args>
bool call(const Api& api, const char* name, PJRT_Error* (*StreamExtension::*member)(Args*), Args& args) {
  const StreamExtension* extension = extension_of(api);
  if (extension == nullptr || extension->*member == nullptr) return false;
  try {
    api.call_extension(name, extension->*member, args);
  } catch (const Error& error) {
    // Some plugins implement the function only to return this code.
    if (error.code == ErrorCode::kUnimplemented) return false;
    throw;
  }
  return true;
}

}  // namespace

std::optional<StreamHandle> plugin_stream(const Client& client, size_t device_index) {
  GetStreamArgs args;
  args.device = client.devices().at(device_index).handle;
  if (!call(client.api(), "PJRT_Get_Stream_For_External_Ready_Events", &StreamExtension::get_stream, args)) {
    return std::nullopt;
  }
  return args.stream;
}

bool wait_on_stream(const Buffer& buffer, StreamHandle stream) {
  WaitArgs args;
  args.stream = stream;
  args.buffer = buffer.handle();
  return call(buffer.client().api(), "PJRT_Wait_Until_Buffer_Ready_On_Stream", &StreamExtension::wait, args);
}

}  // namespace tpjrt::pjrt
