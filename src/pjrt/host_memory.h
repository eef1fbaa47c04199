// The host memory that this process may use.
#pragma once

#include <cstddef>
#include <string>

namespace tpjrt::pjrt {

struct HostMemory {
  size_t available = 0;  // bytes that could be allocated now without swapping
  size_t total = 0;      // bytes in all
};

// Returns the machine's memory, or what the process's control groups leave of it (a container's limit). `root` replaces
// "/" in the paths of system files.
HostMemory host_memory(const std::string& root = "");

}  // namespace tpjrt::pjrt
