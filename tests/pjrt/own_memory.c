// A PJRT plugin whose device has a memory of its own, as GPUs and TPUs have (own_memory.h), and gives no pointers into it.
#include "own_memory.h"

const PJRT_Api* GetPjrtApi(void) {
  static PJRT_Api* api;
  if (api || !(api = own_memory_table())) return api;
  api->PJRT_Buffer_UnsafePointer = NULL;
  api->PJRT_Buffer_OpaqueDeviceMemoryDataPointer = NULL;
  return api;
}
