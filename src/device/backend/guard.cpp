// The device guard, and PyTorch's hooks for the device.
#include "device/backend/guard.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <memory>
#include <mutex>
#include <utility>

#include "device/backend/pinned_memory.h"
#include "device/services/engine.h"
#include "device/tensor/factory.h"
#include "device/tensor/generator.h"
#include "device/tensor/storage.h"
#include "graph/node.h"

namespace tpjrt::device {

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

}  // namespace tpjrt::device
