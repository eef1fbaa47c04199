// Redirects calls between PyTorch's libraries to functions of this file.
#include "device/backend/accelerator.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/util/Exception.h>
#ifdef __linux__
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "device/tensor/storage.h"

namespace tpjrt::device {
namespace {

std::optional<c10::DeviceType> other;  // the accelerator that PyTorch would have without this package
thread_local bool is_ours = false;

[[maybe_unused]] std::optional<c10::DeviceType> get_accelerator(bool /*checked*/) { return is_ours ? kPjrt : other; }
[[maybe_unused]] bool is_accelerator(c10::DeviceType type) { return type != kPjrt && at::isAccelerator(type); }

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#ifdef __x86_64__
constexpr auto kJumpSlot = R_X86_64_JUMP_SLOT;
#else
constexpr auto kJumpSlot = R_AARCH64_JUMP_SLOT;
#endif

struct Replacement {
  std::string_view symbol;
  void* function;
  size_t times = 0;  // how often it was put in a table
};
using Replacements = std::array<Replacement, 2>;

// One library's table, as described by its dynamic section.
struct Table {
  const ElfW(Rela) * relocations = nullptr;
  size_t size = 0;  // in bytes
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;

  Table(const ElfW(Dyn) * dynamic, ElfW(Addr) base) {
    for (; dynamic->d_tag != DT_NULL; ++dynamic) {
      const auto value = dynamic->d_un.d_ptr;  // an address to which glibc has added base, and musl hasn't
      const auto* address = reinterpret_cast<const char*>(value < base ? base + value : value);
      switch (dynamic->d_tag) {
        case DT_JMPREL: relocations = reinterpret_cast<const ElfW(Rela)*>(address); break;
        case DT_PLTRELSZ: size = dynamic->d_un.d_val; break;
        case DT_SYMTAB: symbols = reinterpret_cast<const ElfW(Sym)*>(address); break;
        case DT_STRTAB: names = address; break;
        default: break;
      }
    }
  }
};

bool write(void** slot, void* function) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* start = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) / page * page);
  // A library linked with -z now has a read-only table.
  if (mprotect(start, page, PROT_READ | PROT_WRITE) != 0) return false;
  *slot = function;
  return true;
}

int replace_in(dl_phdr_info* library, size_t /*size*/, void* replacements) {
  const std::string_view path(library->dlpi_name);
  const std::string_view file = path.substr(path.rfind('/') + 1);
  if (!file.starts_with("libtorch")) return 0;
  const auto base = library->dlpi_addr;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = library->dlpi_phdr[i];
    if (segment.p_type != PT_DYNAMIC) continue;
    const Table table(reinterpret_cast<const ElfW(Dyn)*>(base + segment.p_vaddr), base);
    for (size_t k = 0; k < table.size / sizeof(ElfW(Rela)); ++k) {
      const ElfW(Rela) & entry = table.relocations[k];
      if (ELF64_R_TYPE(entry.r_info) != kJumpSlot) continue;
      const std::string_view symbol = table.names + table.symbols[ELF64_R_SYM(entry.r_info)].st_name;
      for (Replacement& each : *static_cast<Replacements*>(replacements)) {
        if (symbol == each.symbol) each.times += write(reinterpret_cast<void**>(base + entry.r_offset), each.function);
      }
    }
  }
  return 0;
}

bool lead_calls_here() {
  Replacements replacements{{
      {"_ZN2at11accelerator14getAcceleratorEb", reinterpret_cast<void*>(&get_accelerator)},
      {"_ZN2at11accelerator13isAcceleratorEN3c1010DeviceTypeE", reinterpret_cast<void*>(&is_accelerator)},
  }};
  dl_iterate_phdr(&replace_in, &replacements);
  return replacements[0].times > 0 && replacements[1].times > 0;
}
#else
bool lead_calls_here() { return false; }
#endif

}  // namespace

bool has_other_accelerator() { return other.has_value(); }

bool set_accelerator_here(bool ours) { return std::exchange(is_ours, ours); }

void keep_accelerator() {
  other = at::getAccelerator();
  if (!other || lead_calls_here()) return;
  TORCH_WARN(
      "\"pjrt\" becomes PyTorch's accelerator in place of '", c10::DeviceTypeName(*other, /*lower_case=*/true),
      "', whose tensors then have no backward() (pytorch/pytorch#161129): this build of PyTorch has no place where "
      "that could be kept from happening. TORCH_DEVICE_BACKEND_AUTOLOAD=0 leaves torch_pjrt out");
  other.reset();
}

}  // namespace tpjrt::device
