// The plugin at $TORCH_PJRT_TEST_PLUGIN with its own memory: it reports that its buffers are not in host memory, and
// only copies host memory. Tests make their plugins from it.
#include <dlfcn.h>
#include <pjrt_c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const PJRT_Api* host;  // the unmodified plugin

static PJRT_Error* is_on_cpu(PJRT_Buffer_IsOnCpu_Args* args) {
  args->is_on_cpu = false;
  return NULL;
}

static PJRT_Error* copy_from_host(PJRT_Client_BufferFromHostBuffer_Args* args) {
  if (args->host_buffer_semantics != PJRT_HostBufferSemantics_kImmutableOnlyDuringCall) {
    fprintf(stderr, "own_memory: a buffer over the host's memory was asked for\n");
    abort();
  }
  return host->PJRT_Client_BufferFromHostBuffer(args);
}

// Returns a table to modify; null if the plugin can't be loaded.
static PJRT_Api* own_memory_table(void) {
  void* library = dlopen(getenv("TORCH_PJRT_TEST_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
  const PJRT_Api* (*get)(void) = library ? (const PJRT_Api* (*)(void))dlsym(library, "GetPjrtApi") : NULL;
  if (!get) {
    fprintf(stderr, "own_memory: %s\n", dlerror());
    return NULL;
  }
  host = get();
  PJRT_Api* api = malloc(host->struct_size);
  memcpy(api, host, host->struct_size);
  api->PJRT_Client_BufferFromHostBuffer = copy_from_host;
  api->PJRT_Buffer_IsOnCpu = is_on_cpu;
  return api;
}
