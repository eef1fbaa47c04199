// An allocator that remembers what it gave.
#include "device/pinned.h"

#include <c10/core/CPUAllocator.h>

#include <iterator>
#include <map>
#include <mutex>
#include <utility>

namespace tpjrt::device {
namespace {

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(nbytes);
    auto* const begin = static_cast<char*>(memory.get());
    if (!begin) return memory;
    const std::lock_guard guard(lock_);
    blocks_.insert_or_assign(begin, Block{begin + nbytes, std::move(memory)});
    return {begin, begin, &give_back, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t nbytes) const override { default_copy_data(to, from, nbytes); }

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
  std::map<const char*, Block> blocks_;  // by where they begin
};

PinnedAllocator& instance() {
  static auto* allocator = new PinnedAllocator;  // never destroyed: tensors may outlive everything else
  return *allocator;
}

void PinnedAllocator::give_back(void* begin) {
  PinnedAllocator& self = instance();
  const std::lock_guard guard(self.lock_);
  self.blocks_.erase(static_cast<const char*>(begin));
}

}  // namespace

c10::Allocator* pinned_allocator() { return &instance(); }
bool is_pinned(const void* data) { return instance().has(data); }

}  // namespace tpjrt::device
