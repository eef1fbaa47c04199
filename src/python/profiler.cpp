// ProfilerActivity.PrivateUse1, and autograd.profiler's use_device="pjrt", put a device event around each op. An op
// of this device is only recorded there, and runs later, fused with others, so its event has no duration. Ranges of
// their own (pjrt::execute, pjrt::wait) show what programs take; they are in the CPU's timeline with or without this.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <functional>

#include "device/services/engine.h"
#include "python/bindings.h"

namespace tpjrt::python {

namespace {

struct Stubs final : torch::profiler::impl::ProfilerStubs {
  using Event = torch::profiler::impl::ProfilerVoidEventStub;
  void record(c10::DeviceIndex* /*device*/, Event* /*event*/, int64_t* /*cpu_ns*/) const override {}
  float elapsed(const Event* /*from*/, const Event* /*to*/) const override { return 0; }
  void mark(const char* /*name*/) const override {}
  void rangePush(const char* /*name*/) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> op) const override {
    for (c10::DeviceIndex i = 0; i < device::engine().device_count(); ++i) op(i);
  }
  void synchronize() const override {
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
    onEachDevice([&](int i) { guard.synchronizeDevice(static_cast<c10::DeviceIndex>(i)); });
  }
};

}  // namespace

void install_profiler() {
  static Stubs stubs;
  torch::profiler::impl::registerPrivateUse1Methods(&stubs);
}

}  // namespace tpjrt::python
