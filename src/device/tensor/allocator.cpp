// Unique addresses, memory statistics for torch.accelerator, and the current device's index.
#include "device/tensor/factory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <atomic>
#include <map>
#include <mutex>

#include "device/services/engine.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

thread_local c10::DeviceIndex chosen = 0;  // the current device

using c10::CachingAllocator::Stat;
using c10::CachingDeviceAllocator::DeviceStats;

struct Range {
  char* base;
  size_t size;
};

// Reserves as large a range as possible, at most 16 TB: `ulimit -v` and valgrind allow less.
Range reserve_range() {
  for (int bits = 44; bits >= 32; bits -= 2) {
    const size_t size = size_t{1} << bits;
    void* range = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range != MAP_FAILED) return {static_cast<char*>(range), size};
  }
  TORCH_CHECK(false, "pjrt: can't reserve address space for device tensors (ulimit -v?)");
}

void no_memory(void* /*context*/) {}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t /*n*/) override { return next_address(current_device()); }
  c10::DeleterFnPtr raw_deleter() const override { return &no_memory; }
  void copy_data(void* /*dest*/, const void* /*src*/, std::size_t /*count*/) const override {
    TORCH_CHECK(false, "pjrt: device memory can't be copied through the allocator; use tensor.copy_()");
  }

  bool initialized() override { return engine().started(); }
  // There is no cache: memory returns to the plugin with the last reference to its value.
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  // A plugin keeps memory until the programs that use it are done.
  void recordStream(const c10::DataPtr& /*pointer*/, c10::Stream /*stream*/) override {}

  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const MemoryUse use = engine().memory(device);
    MemoryUse base;
    {
      const std::lock_guard guard(lock_);
      base = bases_[device];
    }
    Stat bytes, buffers;
    bytes.current = use.current;
    bytes.peak = use.peak;
    bytes.allocated = use.allocated - base.allocated;
    bytes.freed = (use.allocated - use.current) - (base.allocated - base.current);
    buffers.current = buffers.peak = use.allocations - use.frees;  // the peak number of buffers is not counted
    buffers.allocated = use.allocations - base.allocations;
    buffers.freed = use.frees - base.frees;
    DeviceStats stats;
    stats.allocated_bytes[0] = stats.requested_bytes[0] = stats.active_bytes[0] = bytes;
    stats.allocation[0] = stats.active[0] = buffers;
    stats.num_device_alloc = buffers.allocated;
    stats.num_device_free = buffers.freed;
    // Reserved bytes are the plugin's number if it reports one, else this process's.
    stats.reserved_bytes[0] = bytes;
    const auto reported = [&](const char* name, int64_t& into) {
      if (const auto it = use.plugin.find(name); it != use.plugin.end()) into = it->second;
    };
    reported("bytes_in_use", stats.reserved_bytes[0].current);
    reported("peak_bytes_in_use", stats.reserved_bytes[0].peak);
    reported("pool_bytes", stats.reserved_bytes[0].current);
    reported("peak_pool_bytes", stats.reserved_bytes[0].peak);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    const MemoryUse use = engine().memory(device);
    const std::lock_guard guard(lock_);
    bases_[device] = use;
  }
  void resetPeakStats(c10::DeviceIndex device) override { engine().reset_peak_memory(device); }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const auto sizes = engine().memory_info(device);
    TORCH_CHECK_NOT_IMPLEMENTED(sizes, "pjrt: this plugin doesn't tell how much memory its devices have");
    return *sizes;
  }

 private:
  std::mutex lock_;
  std::map<c10::DeviceIndex, MemoryUse> bases_;  // when the accumulated statistics were last reset
};

}  // namespace

c10::Allocator* allocator() {
  static auto* instance = new Allocator;
  return instance;
}

// Gives each storage the next 64-byte step of a reserved range. Addresses are never reused (except after 2^38
// storages at best), so equal addresses mean one storage.
c10::DataPtr next_address(c10::DeviceIndex device) {
  constexpr size_t kStep = 64;
  static const Range range = reserve_range();
  static std::atomic<size_t> next{kStep};
  void* pointer = range.base + (next.fetch_add(kStep, std::memory_order_relaxed) & (range.size - 1));
  return {pointer, pointer, &no_memory, c10::Device(kPjrt, device)};
}

c10::DeviceIndex device_index(int64_t index) {
  if (index == 0) return 0;
  const int64_t count = engine().device_count();
  TORCH_CHECK(index > 0 && index < count, "pjrt: invalid device ordinal ", index, ": the plugin has ", count, " device",
              count == 1 ? "; use pjrt:0" : c10::str("s; use pjrt:0 to pjrt:", count - 1));
  return static_cast<c10::DeviceIndex>(index);
}

c10::DeviceIndex current_device() { return chosen; }

void set_current_device(c10::DeviceIndex index) {
  if (index >= 0 && index != chosen) chosen = device_index(index);
}

void set_current_device_unchecked(c10::DeviceIndex index) noexcept {
  if (index >= 0) chosen = index;
}

}  // namespace tpjrt::device
