// Redirects the references of loaded libraries, in the tables that the dynamic linker has filled.
#include "linkage/redirect.h"

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#endif

namespace tpjrt::linkage {

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))

namespace {

using Segment = ElfW(Phdr);
using Relocation = ElfW(Rela);

uintptr_t page_of(uintptr_t address) {
  const auto size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return address / size * size;
}

class References {
 public:
  explicit References(const dl_phdr_info& library) : base_(library.dlpi_addr) {
    for (const Segment& segment : std::span(library.dlpi_phdr, library.dlpi_phnum)) {
      const uintptr_t begin = base_ + segment.p_vaddr;
      if (segment.p_type == PT_DYNAMIC) read(reinterpret_cast<const ElfW(Dyn)*>(begin));
      if (segment.p_type != PT_GNU_RELRO) continue;
      read_only_ = page_of(begin);
      read_only_end_ = page_of(begin + segment.p_memsz);
    }
  }

  void redirect(std::span<Redirection> redirections) const {
    if (!symbols_ || !names_) return;
    for (const std::span<const Relocation>& table : {calls_, others_}) {
      for (const Relocation& relocation : table) {
        const size_t symbol = ELF64_R_SYM(relocation.r_info);
        if (symbol == 0 || relocation.r_addend != 0) continue;
        const std::string_view name = names_ + symbols_[symbol].st_name;
        for (Redirection& each : redirections) {
          if (name == each.symbol) each.count += write(base_ + relocation.r_offset, each.function);
        }
      }
    }
  }

 private:
  void read(const ElfW(Dyn) * entry) {
    uintptr_t calls = 0, others = 0;
    size_t calls_bytes = 0, others_bytes = 0;
    bool has_addends = false;
    for (; entry->d_tag != DT_NULL; ++entry) {
      const uintptr_t value = entry->d_un.d_ptr;
      const uintptr_t address = value < base_ ? base_ + value : value;  // glibc has added base, and musl hasn't
      switch (entry->d_tag) {
        case DT_JMPREL: calls = address; break;
        case DT_PLTRELSZ: calls_bytes = value; break;
        case DT_PLTREL: has_addends = value == DT_RELA; break;
        case DT_RELA: others = address; break;
        case DT_RELASZ: others_bytes = value; break;
        case DT_SYMTAB: symbols_ = reinterpret_cast<const ElfW(Sym)*>(address); break;
        case DT_STRTAB: names_ = reinterpret_cast<const char*>(address); break;
        default: break;
      }
    }
    const auto table = [](uintptr_t begin, size_t bytes) {
      return std::span(reinterpret_cast<const Relocation*>(begin), begin ? bytes / sizeof(Relocation) : 0);
    };
    if (has_addends) calls_ = table(calls, calls_bytes);
    others_ = table(others, others_bytes);
  }

  // Returns whether the reference was written. Memory that is read-only since relocation is read-only afterwards, too.
  bool write(uintptr_t place, void* function) const {
    const bool is_read_only = place >= read_only_ && place < read_only_end_;
    void* const page = reinterpret_cast<void*>(page_of(place));
    const auto size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    if (is_read_only && ::mprotect(page, size, PROT_READ | PROT_WRITE) != 0) return false;
    std::atomic_ref<void*>(*reinterpret_cast<void**>(place)).store(function);
    if (is_read_only) static_cast<void>(::mprotect(page, size, PROT_READ));
    return true;
  }

  uintptr_t base_;
  uintptr_t read_only_ = 0, read_only_end_ = 0;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
  std::span<const Relocation> calls_, others_;
};

struct Request {
  const std::function<bool(const Library&)>& is_chosen;
  std::span<Redirection> redirections;
};

int redirect_in(dl_phdr_info* info, size_t /*size*/, void* data) {
  const auto& request = *static_cast<Request*>(data);
  const auto contains = [info](const void* address) {
    return std::ranges::any_of(std::span(info->dlpi_phdr, info->dlpi_phnum), [&](const Segment& segment) {
      const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
      return segment.p_type == PT_LOAD && reinterpret_cast<uintptr_t>(address) - begin < segment.p_memsz;
    });
  };
  if (request.is_chosen({info->dlpi_name, contains})) References(*info).redirect(request.redirections);
  return 0;
}

}  // namespace

void redirect(const std::function<bool(const Library&)>& is_chosen, std::span<Redirection> redirections) {
  Request request{is_chosen, redirections};
  ::dl_iterate_phdr(&redirect_in, &request);
}

#else

void redirect(const std::function<bool(const Library&)>& /*is_chosen*/, std::span<Redirection> /*redirections*/) {}

#endif

}  // namespace tpjrt::linkage
