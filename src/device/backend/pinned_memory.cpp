// An allocator that keeps a list of its blocks.
#include "device/backend/pinned_memory.h"

#include <c10/core/CPUAllocator.h>

#include <iterator>
#include <map>
#include <mutex>
#include <utility>

namespace tpjrt::device {

namespace {

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(nbytes);
    auto* const begin = static_cast<char*>(memory.get());
    if (!begin) return memory;
    const std::lock_guard guard(lock_);
    blocks_.insert_or_assign(begin, Block{begin + nbytes, std::move(memory)});
    stats_.allocations.increase(1);
    stats_.allocated_bytes.increase(nbytes);
    ++stats_.num_host_alloc;
    return {begin, begin, &give_back, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t nbytes) const override { default_copy_data(to, from, nbytes); }

  // Copies no longer use the memory when they return.
  bool record_event(void* /*pointer*/, void* /*context*/, c10::Stream /*stream*/) override { return true; }
  void empty_cache() override {}  // there is no cache
  at::HostStats get_stats() override {
    const std::lock_guard guard(lock_);
    return stats_;
  }
  void reset_accumulated_stats() override {
    const std::lock_guard guard(lock_);
    stats_.allocations.reset_accumulated();
    stats_.allocated_bytes.reset_accumulated();
    stats_.num_host_alloc = stats_.num_host_free = 0;
  }
  void reset_peak_stats() override {
    const std::lock_guard guard(lock_);
    stats_.allocations.reset_peak();
    stats_.allocated_bytes.reset_peak();
  }

  bool has(const void* data) {
    const std::lock_guard guard(lock_);
    const auto after = blocks_.upper_bound(static_cast<const char*>(data));
    return after != blocks_.begin() && data < std::prev(after)->second.end;
  }

 private:
  struct Block {
    const char* end;
    c10::DataPtr memory;
  };

  static void give_back(void* begin);

  std::mutex lock_;
  std::map<const char*, Block> blocks_;  // by their first address
  at::HostStats stats_;
};

PinnedAllocator& instance() {
  static auto* allocator = new PinnedAllocator;  // leaked: tensors may outlive everything else
  return *allocator;
}

void PinnedAllocator::give_back(void* begin) {
  PinnedAllocator& self = instance();
  const std::lock_guard guard(self.lock_);
  const auto block = self.blocks_.find(static_cast<const char*>(begin));
  self.stats_.allocations.decrease(1);
  self.stats_.allocated_bytes.decrease(static_cast<size_t>(block->second.end - block->first));
  ++self.stats_.num_host_free;
  self.blocks_.erase(block);
}

}  // namespace

at::HostAllocator* pinned_allocator() { return &instance(); }
bool is_pinned(const void* data) { return instance().has(data); }

}  // namespace tpjrt::device
