// Asks a plugin about a device's memory, and reads the host's memory sizes from /proc and /sys.
#include "pjrt/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>

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

namespace {

// Returns the number in a file; nothing if the file doesn't exist or says "max".
std::optional<size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  size_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// Applies the limits of the group and its parents: the least limit holds.
void limit_by_groups(HostMemory& memory, const std::string& folder, std::string group, const char* limit_name,
                     const char* usage_name) {
  for (;;) {
    const std::string path = folder + (group == "/" ? "" : group) + "/";
    const std::optional<size_t> limit = number_in(path + limit_name);
    if (limit && *limit < memory.total) {
      memory.total = *limit;
      memory.available =
          std::min(memory.available, *limit - std::min(*limit, number_in(path + usage_name).value_or(0)));
    }
    if (group.empty() || group == "/") return;
    group.resize(group.rfind('/'));
  }
}

}  // namespace

HostMemory host_memory(const std::string& root) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  HostMemory memory{static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * page,
                    static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page};
  std::ifstream file(root + "/proc/meminfo");
  std::string name;
  for (size_t kilobytes = 0; file >> name >> kilobytes; file.ignore(64, '\n')) {
    if (name == "MemTotal:") memory.total = kilobytes * 1024;
    if (name == "MemAvailable:") memory.available = kilobytes * 1024;
  }
  std::ifstream groups(root + "/proc/self/cgroup");  // "0::/group" (version 2), "4:memory:/group" (version 1)
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",",
                      group = line.substr(second + 1);
    if (controllers == ",,") {
      limit_by_groups(memory, root + "/sys/fs/cgroup", group, "memory.max", "memory.current");
    } else if (controllers.find(",memory,") != std::string::npos) {
      limit_by_groups(memory, root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes");
    }
  }
  return memory;
}

}  // namespace tpjrt::pjrt
