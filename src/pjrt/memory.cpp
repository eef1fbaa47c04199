// Queries a plugin about a device's memory.
#include "pjrt/memory.h"

namespace tpjrt::pjrt {

std::map<std::string, int64_t> device_memory_stats(const Api& api, PJRT_Device* device) {
  std::map<std::string, int64_t> stats;
  if (!api.has(&PJRT_Api::PJRT_Device_MemoryStats)) return stats;
  TPJRT_ARGS(PJRT_Device_MemoryStats, args);
  args.device = device;
  try {
    TPJRT_CALL(api, PJRT_Device_MemoryStats, args);
  } catch (const Error& error) {
    if (error.code == ErrorCode::kUnimplemented) return stats;  // some plugins only return this code
    throw;
  }
  stats["bytes_in_use"] = args.bytes_in_use;
  const auto add = [&](const char* name, int64_t value, bool is_set) {
    if (is_set) stats[name] = value;
  };
  add("peak_bytes_in_use", args.peak_bytes_in_use, args.peak_bytes_in_use_is_set);
  add("num_allocs", args.num_allocs, args.num_allocs_is_set);
  add("largest_alloc_size", args.largest_alloc_size, args.largest_alloc_size_is_set);
  add("bytes_limit", args.bytes_limit, args.bytes_limit_is_set);
  add("bytes_reserved", args.bytes_reserved, args.bytes_reserved_is_set);
  add("peak_bytes_reserved", args.peak_bytes_reserved, args.peak_bytes_reserved_is_set);
  add("bytes_reservable_limit", args.bytes_reservable_limit, args.bytes_reservable_limit_is_set);
  add("largest_free_block_bytes", args.largest_free_block_bytes, args.largest_free_block_bytes_is_set);
  add("pool_bytes", args.pool_bytes, args.pool_bytes_is_set);
  add("peak_pool_bytes", args.peak_pool_bytes, args.peak_pool_bytes_is_set);
  return stats;
}

}  // namespace tpjrt::pjrt
