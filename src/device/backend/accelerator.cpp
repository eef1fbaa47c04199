// Redirects calls between PyTorch's libraries to functions of this file. The device guard, and PyTorch's hooks for the
// device. An allocator that keeps a list of its blocks.
#include "device/backend/accelerator.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <array>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "device/services/engine.h"
#include "device/tensor/factory.h"
#include "device/tensor/generator.h"
#include "device/tensor/storage.h"
#include "graph/node.h"

#ifdef __linux__
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

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

namespace {

c10::DeviceIndex resolve(c10::DeviceIndex index) { return index < 0 ? current_device() : index; }
c10::Stream queue_of(c10::Device device) {
  return c10::Stream(c10::Stream::DEFAULT, c10::Device(kPjrt, resolve(device.index())));
}

// Starts all recorded work: a query whether work is complete includes recorded calls.
void start_all() { engine().start("a stream or an event was asked for", graph::kEver, {}); }

void finish(c10::DeviceIndex device) {
  start_all();
  engine().wait(*engine().now(resolve(device)));
}

// The object behind an event's pointer. Recording an event starts nothing, because FSDP2 records one for each block
// and queries none of them: it marks a position in the program, and a query starts the work recorded before. A timed
// event does start it, or everything between two events would be one program.
class Recorded {
 public:
  void record(c10::DeviceIndex device, bool is_timed) {
    bool is_pending = false;
    uint64_t place = 0;
    {
      std::lock_guard lock(graph::graph_lock());
      is_pending = graph::any_pending();
      place = graph::newest_id();
    }
    if (is_pending && is_timed) start_all();
    auto moment = is_pending && !is_timed ? nullptr : engine().now(device);
    std::lock_guard lock(lock_);
    device_ = device;
    place_ = place;
    moment_ = std::move(moment);
  }
  std::shared_ptr<Moment> moment() {
    c10::DeviceIndex device = 0;
    uint64_t place = 0;
    {
      std::lock_guard lock(lock_);
      if (moment_) return moment_;
      device = device_;
      place = place_;
    }
    // Work that was started meanwhile can't be told from later work, so the moment is now.
    engine().start("an event was asked for", graph::kEver, {.begun = place});
    auto moment = engine().now(device);
    std::lock_guard lock(lock_);
    if (!moment_ && place_ == place) moment_ = moment;
    return moment;
  }

 private:
  std::mutex lock_;  // not held during calls of the engine, which may want the GIL
  c10::DeviceIndex device_ = 0;
  uint64_t place_ = 0;              // the newest node before the event
  std::shared_ptr<Moment> moment_;  // null: not queried yet
};
std::shared_ptr<Moment> moment_of(void* event) { return static_cast<Recorded*>(event)->moment(); }

c10::DeviceIndex count_devices(c10::DeviceIndex (Engine::*count)()) noexcept {
  try {
    return (engine().*count)();
  } catch (const std::exception&) {
    return 0;  // no plugin, so no device; torch_pjrt.init() reports why
  }
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kPjrt; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kPjrt, current_device()}; }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { set_current_device_unchecked(device.index()); }
  c10::Stream getStream(c10::Device device) const override { return queue_of(device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return queue_of(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high_priority*/) const override {
    return queue_of(device);
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override { return queue_of(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return queue_of(stream.device()); }
  // Autograd asks every backend before its first backward, whatever its tensors' device. The answer must not start a
  // client: CUDA's takes a share of a GPU's memory.
  c10::DeviceIndex deviceCount() const noexcept override { return count_devices(&Engine::most_devices); }
  c10::DeviceCapability getDeviceCapability(c10::Device /*device*/) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits = 0;
    for (size_t i = 0; i < c10::NUMBER_OF_DEVICE_CAPABILITIES; ++i) {
      if (is_supported(static_cast<c10::ScalarType>(i))) capability.capability_data.capability_bits |= uint64_t{1} << i;
    }
    return capability;
  }
  bool queryStream(const c10::Stream& stream) const override {
    start_all();
    return engine().now(stream.device_index())->reached();
  }
  void synchronizeStream(const c10::Stream& stream) const override { finish(stream.device_index()); }
  void synchronizeDevice(const c10::DeviceIndex index) const override { finish(index); }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*index*/,
              const c10::EventFlag flag) const override {
    if (!*event) *event = new Recorded;
    static_cast<Recorded*>(*event)->record(stream.device_index(), flag == c10::EventFlag::BACKEND_DEFAULT);
  }
  // Work that is recorded later on the device runs later anyway, and values wait for their operands.
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  void synchronizeEvent(void* event) const override {
    if (event) engine().wait(*moment_of(event));
  }
  bool queryEvent(void* event) const override { return !event || moment_of(event)->reached(); }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex /*index*/) const override {
    const auto begin = moment_of(from), end = moment_of(to);
    TORCH_CHECK(begin->reached() && end->reached(), "Both events must be completed before calculating elapsed time.");
    return static_cast<double>(end->reached_at_ns() - begin->reached_at_ns()) * 1e-6;
  }
  void destroyEvent(void* event, const c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Recorded*>(event);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return count_devices(&Engine::most_devices) > 0; }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return engine().started(); }
  c10::DeviceIndex deviceCount() const override { return count_devices(&Engine::device_count); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto before = current_device();
    set_current_device(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<PjrtGenerator>(index < 0 ? current_device() : index);
  }
  at::Device getDeviceFromPtr(void* /*data*/) const override { return {kPjrt, current_device()}; }
  at::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(storage, nbytes);
  }
};

}  // namespace

void install_guard() {
  static const Guard guard;
  static Hooks hooks;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(kPjrt)].store(&guard);
  at::RegisterPrivateUse1HooksInterface(&hooks);
  at::setHostAllocator(kPjrt, pinned_allocator());
}

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
