// Large memory that a plugin frees is kept for its next allocation (Note [Large memory]).
#include "pjrt/large_memory.h"

#include <stdlib.h>  // defines __GLIBC__

#ifdef __GLIBC__
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>
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

uintptr_t replacement(std::string_view name) {
  if (name == "posix_memalign") return reinterpret_cast<uintptr_t>(&large_posix_memalign);
  if (name == "aligned_alloc") return reinterpret_cast<uintptr_t>(&large_aligned_alloc);
  if (name == "free") return reinterpret_cast<uintptr_t>(&large_free);
  return 0;
}

using Part = ElfW(Phdr);
using Entry = ElfW(Dyn);

struct Library {
  uintptr_t inside;  // an address in it, given
  uintptr_t base = 0;
  const Entry* dynamic = nullptr;
  uintptr_t begin = 0, end = 0;  // the range that is read-only once its references are resolved
};

int find_library(dl_phdr_info* info, size_t /*size*/, void* data) {
  auto& library = *static_cast<Library*>(data);
  const std::span<const Part> parts(info->dlpi_phdr, info->dlpi_phnum);
  const auto begin_of = [&](const Part& part) { return info->dlpi_addr + part.p_vaddr; };
  if (std::ranges::none_of(parts, [&](const Part& part) {
        return part.p_type == PT_LOAD && library.inside - begin_of(part) < part.p_memsz;
      })) {
    return 0;
  }
  library.base = info->dlpi_addr;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (const Part& part : parts) {
    const uintptr_t begin = begin_of(part);
    if (part.p_type == PT_DYNAMIC) library.dynamic = reinterpret_cast<const Entry*>(begin);
    if (part.p_type != PT_GNU_RELRO) continue;
    library.begin = begin / page * page;
    library.end = (begin + part.p_memsz) / page * page;
  }
  return 1;
}

bool write_reference(const Library& library, uintptr_t place, uintptr_t value) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  void* around = reinterpret_cast<void*>(place / page * page);
  const bool read_only = place >= library.begin && place < library.end;
  if (read_only && ::mprotect(around, page, PROT_READ | PROT_WRITE) != 0) return false;
  std::atomic_ref<uintptr_t>(*reinterpret_cast<uintptr_t*>(place)).store(value);
  if (read_only) static_cast<void>(::mprotect(around, page, PROT_READ));
  return true;
}

}  // namespace

bool keep_large_memory(const void* in_library) noexcept {
  Library library{reinterpret_cast<uintptr_t>(in_library)};
  ::dl_iterate_phdr(find_library, &library);
  if (library.dynamic == nullptr) return false;
  const auto table = [&](auto tag) -> uintptr_t {  // glibc has made addresses of them
    const Entry* entry = library.dynamic;
    while (entry->d_tag != DT_NULL && entry->d_tag != tag) ++entry;
    return entry->d_tag == DT_NULL ? 0 : entry->d_un.d_ptr;
  };
  const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(table(DT_SYMTAB));
  const auto* names = reinterpret_cast<const char*>(table(DT_STRTAB));
  if (symbols == nullptr || names == nullptr) return false;
  bool replaced = false;
  const auto replace_in = [&](uintptr_t begin, uintptr_t bytes) {
    const auto* entry = reinterpret_cast<const ElfW(Rela)*>(begin);
    for (size_t i = 0; i < bytes / sizeof *entry; ++i) {
      const size_t symbol = ELF64_R_SYM(entry[i].r_info);
      if (symbol == 0 || entry[i].r_addend != 0) continue;
      const uintptr_t value = replacement(names + symbols[symbol].st_name);
      if (value != 0) replaced |= write_reference(library, library.base + entry[i].r_offset, value);
    }
  };
  if (table(DT_PLTREL) == DT_RELA) replace_in(table(DT_JMPREL), table(DT_PLTRELSZ));
  replace_in(table(DT_RELA), table(DT_RELASZ));
  return replaced;
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
