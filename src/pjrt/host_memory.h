// The host's memory, as far as this process may use it.
#pragma once

#include <cstddef>
#include <string>

namespace tpjrt::pjrt {

struct HostMemory {
  size_t available = 0;  // bytes that could be had now without swapping
  size_t total = 0;      // bytes in all
};

// The machine's memory, or what the control groups that this process is in leave of it (a container's limit).
// `root` stands for "/", where the system tells of itself.
HostMemory host_memory(const std::string& root = "");

}  // namespace tpjrt::pjrt
