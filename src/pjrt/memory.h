// How much memory there is and how much of it is used: a device's by this room's buffers, and the host's.
#pragma once

#include <pjrt_c_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "pjrt/api/api.h"

namespace tpjrt::pjrt {

// Bytes and number of the buffers on one device, as dense arrays. Temporaries of running programs and the plugin's
// rounding are not included. Thread-safe; fields are not read at one moment.
class MemoryUse {
 public:
  void add(size_t bytes) noexcept {
    const auto size = static_cast<int64_t>(bytes);
    allocations_.fetch_add(1, std::memory_order_relaxed);
    allocated_.fetch_add(size, std::memory_order_relaxed);
    const int64_t now = current_.fetch_add(size, std::memory_order_relaxed) + size;
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void remove(size_t bytes) noexcept {
    frees_.fetch_add(1, std::memory_order_relaxed);
    current_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  }

  int64_t current_bytes() const { return current_; }
  int64_t peak_bytes() const { return peak_; }
  // Totals since the start: all bytes ever added, and the numbers of calls of add and remove.
  int64_t allocated_bytes() const { return allocated_; }
  int64_t allocations() const { return allocations_; }
  int64_t frees() const { return frees_; }
  void reset_peak() { peak_ = current_.load(); }

 private:
  std::atomic<int64_t> current_{0}, peak_{0}, allocated_{0}, allocations_{0}, frees_{0};
};

// Returns the plugin's statistics, named like the fields of PJRT_Device_MemoryStats ("bytes_in_use", "bytes_limit");
// empty if it has none, like the CPU plugin.
std::map<std::string, int64_t> device_memory_stats(const Api& api, PJRT_Device* device);

// The host memory that this process may use.
struct HostMemory {
  size_t available = 0;  // bytes that could be allocated now without swapping
  size_t total = 0;      // bytes in all
};

// Returns the machine's memory, or what the process's control groups leave of it (a container's limit). `root` replaces
// "/" in the paths of system files.
HostMemory host_memory(const std::string& root = "");

}  // namespace tpjrt::pjrt
