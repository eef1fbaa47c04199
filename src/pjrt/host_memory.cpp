// Reads memory sizes from /proc and /sys.
#include "pjrt/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>

namespace tpjrt::pjrt {
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
