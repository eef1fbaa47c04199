// A PJRT plugin whose device has its own memory, like GPUs and TPUs (own_memory.h), without pointers into it. It
// reports $TORCH_PJRT_TEST_MEMORY bytes.
#include "own_memory.h"

static PJRT_Error* memory_stats(PJRT_Device_MemoryStats_Args* args) {
  args->bytes_in_use = 0;
  args->bytes_limit = atoll(getenv("TORCH_PJRT_TEST_MEMORY"));
  args->bytes_limit_is_set = true;
  return NULL;
}

const PJRT_Api* GetPjrtApi(void) {
  static PJRT_Api* api;
  if (api || !(api = own_memory_table())) return api;
  api->PJRT_Buffer_UnsafePointer = NULL;
  api->PJRT_Buffer_OpaqueDeviceMemoryDataPointer = NULL;
  if (getenv("TORCH_PJRT_TEST_MEMORY")) api->PJRT_Device_MemoryStats = memory_stats;
  return api;
}
