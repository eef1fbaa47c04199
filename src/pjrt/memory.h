// How much of a device's memory is in use: what this room counts of its own buffers, and what the plugin tells.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "pjrt/api/api.h"

namespace tpjrt::pjrt {

// Bytes and numbers of the buffers on one device, as dense arrays. What a program needs while it runs, and what the
// plugin adds by rounding, is not in it. May be used from any thread; one field says nothing of another's moment.
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
  // Since the start: all bytes that were ever added, and the numbers of calls of add and remove.
  int64_t allocated_bytes() const { return allocated_; }
  int64_t allocations() const { return allocations_; }
  int64_t frees() const { return frees_; }
  void reset_peak() { peak_ = current_.load(); }

 private:
  std::atomic<int64_t> current_{0}, peak_{0}, allocated_{0}, allocations_{0}, frees_{0};
};

// What the plugin tells, by the names of PJRT_Device_MemoryStats' fields ("bytes_in_use", "bytes_limit"); empty where it
// tells nothing, as the CPU's.
std::map<std::string, int64_t> device_memory_stats(const Api& api, PJRT_Device* device);

}  // namespace tpjrt::pjrt
