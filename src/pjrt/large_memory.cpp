// Large memory that a plugin frees is kept for its next allocation (Note [Large memory]).
#include "pjrt/large_memory.h"

#include <stdlib.h>  // defines __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "linkage/redirect.h"
#endif

namespace tpjrt::pjrt {

#ifdef __GLIBC__

namespace {

constexpr size_t kLarge = size_t{8} << 20;

struct Block {
  void* memory;
  size_t bytes;  // that the C library says are usable
};

// Thread-safe. No block is allocated or freed with the lock held.
class Kept {
 public:
  // Returns a kept block, or null after blocks that would exceed the most in use were moved to `evicted`.
  void* take(size_t alignment, size_t bytes, std::vector<Block>& evicted) {
    const std::lock_guard guard(lock_);
    const auto fits = [&](const Block& block) {
      return block.bytes >= bytes && block.bytes / 2 <= bytes &&
             reinterpret_cast<uintptr_t>(block.memory) % alignment == 0;
    };
    if (const auto found = std::find_if(blocks_.begin(), blocks_.end(), fits); found != blocks_.end()) {
      void* memory = found->memory;
      kept_ -= found->bytes;
      use(*found);
      blocks_.erase(found);
      return memory;
    }
    while (!blocks_.empty() && in_use_ + bytes + kept_ > most_) evict(evicted);
    return nullptr;
  }
  void add_in_use(const Block& block) {
    const std::lock_guard guard(lock_);
    use(block);
    most_ = std::max(most_, in_use_ + kept_);
  }
  // Returns false if the memory was allocated in another way.
  bool keep(const Block& block, std::vector<Block>& evicted) {
    const std::lock_guard guard(lock_);
    const auto used = used_.find(block.memory);
    if (used == used_.end()) return false;
    in_use_ -= used->second;
    used_.erase(used);
    blocks_.push_back(block);
    kept_ += block.bytes;
    while (!blocks_.empty() && in_use_ + kept_ > most_) evict(evicted);
    return true;
  }
  void evict_all(std::vector<Block>& evicted) {
    const std::lock_guard guard(lock_);
    while (!blocks_.empty()) evict(evicted);
  }
  size_t bytes() {
    const std::lock_guard guard(lock_);
    return kept_;
  }

 private:
  void use(const Block& block) {
    in_use_ -= std::exchange(used_[block.memory], block.bytes);  // an entry is there if others have freed it
    in_use_ += block.bytes;
  }
  void evict(std::vector<Block>& evicted) {
    kept_ -= blocks_.front().bytes;
    evicted.push_back(blocks_.front());
    blocks_.erase(blocks_.begin());
  }

  std::mutex lock_;
  std::vector<Block> blocks_;  // the one that was freed first is the first
  std::map<void*, size_t> used_;
  size_t kept_ = 0, in_use_ = 0, most_ = 0;
};

Kept& kept() {
  static Kept& all = *new Kept;  // leaked: plugins' threads may outlive static objects
  return all;
}

void free_all(const std::vector<Block>& blocks) {
  for (const Block& block : blocks) ::free(block.memory);
}

int large_posix_memalign(void** memory, size_t alignment, size_t bytes) {
  if (bytes < kLarge) return ::posix_memalign(memory, alignment, bytes);
  std::vector<Block> evicted;
  void* const found = kept().take(alignment, bytes, evicted);
  free_all(evicted);
  if (found != nullptr) {
    *memory = found;
    return 0;
  }
  int error = ::posix_memalign(memory, alignment, bytes);
  if (error == ENOMEM) {
    return_kept_memory();
    error = ::posix_memalign(memory, alignment, bytes);
  }
  if (error == 0) kept().add_in_use({*memory, ::malloc_usable_size(*memory)});
  return error;
}

void* large_aligned_alloc(size_t alignment, size_t bytes) {
  if (bytes < kLarge) return ::aligned_alloc(alignment, bytes);
  void* memory = nullptr;
  const int error = large_posix_memalign(&memory, std::max(alignment, sizeof(void*)), bytes);
  if (error != 0) errno = error;
  return error == 0 ? memory : nullptr;
}

void large_free(void* memory) {
  const size_t bytes = memory == nullptr ? 0 : ::malloc_usable_size(memory);
  if (bytes < kLarge) return ::free(memory);
  std::vector<Block> evicted;
  if (!kept().keep({memory, bytes}, evicted)) ::free(memory);
  free_all(evicted);
}

}  // namespace

bool keep_large_memory(const void* in_library) noexcept {
  std::array redirections{
      linkage::Redirection{"posix_memalign", reinterpret_cast<void*>(&large_posix_memalign)},
      linkage::Redirection{"aligned_alloc", reinterpret_cast<void*>(&large_aligned_alloc)},
      linkage::Redirection{"free", reinterpret_cast<void*>(&large_free)},
  };
  linkage::redirect([&](const linkage::Library& library) { return library.contains(in_library); }, redirections);
  return std::ranges::any_of(redirections, [](const linkage::Redirection& each) { return each.count > 0; });
}

size_t kept_memory() noexcept { return kept().bytes(); }

void return_kept_memory() noexcept {
  std::vector<Block> evicted;
  kept().evict_all(evicted);
  free_all(evicted);
}

#else

bool keep_large_memory(const void* /*in_library*/) noexcept { return false; }
size_t kept_memory() noexcept { return 0; }
void return_kept_memory() noexcept {}

#endif

}  // namespace tpjrt::pjrt
