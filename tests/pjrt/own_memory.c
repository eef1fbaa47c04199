// A PJRT plugin whose device has a memory of its own, as GPUs and TPUs have: the one at $TORCH_PJRT_TEST_PLUGIN, which
// says that its buffers are not in the host's memory, gives no pointers to them, and takes host memory by copy alone.
#include <dlfcn.h>
#include <pjrt_c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PJRT_Client_BufferFromHostBuffer* buffer_from_host;

static PJRT_Error* is_on_cpu(PJRT_Buffer_IsOnCpu_Args* args) {
  args->is_on_cpu = false;
  return NULL;
}

static PJRT_Error* copy_from_host(PJRT_Client_BufferFromHostBuffer_Args* args) {
  if (args->host_buffer_semantics != PJRT_HostBufferSemantics_kImmutableOnlyDuringCall) {
    fprintf(stderr, "own_memory: a buffer over the host's memory was asked for\n");
    abort();
  }
  return buffer_from_host(args);
}

const PJRT_Api* GetPjrtApi(void) {
  static PJRT_Api* api;
  if (api) return api;
  void* library = dlopen(getenv("TORCH_PJRT_TEST_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
  const PJRT_Api* (*get)(void) = library ? (const PJRT_Api* (*)(void))dlsym(library, "GetPjrtApi") : NULL;
  if (!get) {
    fprintf(stderr, "own_memory: %s\n", dlerror());
    return NULL;
  }
  const PJRT_Api* host = get();
  api = malloc(host->struct_size);
  memcpy(api, host, host->struct_size);
  buffer_from_host = host->PJRT_Client_BufferFromHostBuffer;
  api->PJRT_Client_BufferFromHostBuffer = copy_from_host;
  api->PJRT_Buffer_IsOnCpu = is_on_cpu;
  api->PJRT_Buffer_UnsafePointer = NULL;
  api->PJRT_Buffer_OpaqueDeviceMemoryDataPointer = NULL;
  return api;
}
