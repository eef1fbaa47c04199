// The current index, and the check of a new one.
#include "device/tensor/current_device.h"

#include <c10/util/Exception.h>

#include "device/services/engine.h"

namespace tpjrt::device {
namespace {

thread_local c10::DeviceIndex current = 0;

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

void set_current_device_unchecked(c10::DeviceIndex index) noexcept {
  if (index >= 0) current = index;
}

}  // namespace tpjrt::device
