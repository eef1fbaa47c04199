// The device guard and PyTorch's hooks for the device.
#include "device/guard.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "device/engine.h"
#include "device/factory.h"
#include "device/generator.h"
#include "device/storage.h"

namespace tpjrt::device {
namespace {

thread_local c10::DeviceIndex current = 0;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kPjrt; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kPjrt, current}; }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current = device.index();
  }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high_priority*/) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return getStream(stream.device()); }
  c10::DeviceIndex deviceCount() const noexcept override {
    try {
      return engine().device_count();
    } catch (const std::exception&) {
      return 0;  // no plugin: no device. torch_pjrt.init() tells why
    }
  }
  bool queryStream(const c10::Stream& /*stream*/) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override { engine().wait(stream.device_index()); }
  void synchronizeDevice(const c10::DeviceIndex index) const override { engine().wait(index); }
  void synchronizeEvent(void* /*event*/) const override { engine().wait(current); }
  bool queryEvent(void* /*event*/) const override { return true; }
  void block(void* /*event*/, const c10::Stream& /*stream*/) const override {}
  void record(void** /*event*/, const c10::Stream& /*stream*/, const c10::DeviceIndex /*index*/,
              const c10::EventFlag /*flag*/) const override {}
  void destroyEvent(void* /*event*/, const c10::DeviceIndex /*index*/) const noexcept override {}
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return Guard().deviceCount(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto before = current;
    set_current_device(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<PjrtGenerator>(index < 0 ? current : index);
  }
  at::Device getDeviceFromPtr(void* /*data*/) const override { return {kPjrt, current}; }
  // Host memory needs no pinning for the copies made here; the CPU allocator serves DataLoader(pin_memory=True).
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(storage, nbytes);
  }
};

}  // namespace

c10::DeviceIndex current_device() { return current; }

void set_current_device(c10::DeviceIndex index) {
  if (index < 0 || index == current) return;
  if (index > 0) {
    const auto count = engine().device_count();
    TORCH_CHECK(index < count, "pjrt: invalid device index ", static_cast<int>(index), ": the plugin has ",
                static_cast<int>(count), " device", count == 1 ? "" : "s",
                "; use pjrt:0 to pjrt:", static_cast<int>(count) - 1);
  }
  current = index;
}

void install_guard() {
  static const Guard guard;
  static Hooks hooks;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(kPjrt)].store(&guard);
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

}  // namespace tpjrt::device
