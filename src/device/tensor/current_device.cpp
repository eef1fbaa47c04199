// The current device's index, and the check of a new one.
#include "device/tensor/current_device.h"

#include <c10/util/Exception.h>

#include "device/services/engine.h"

namespace tpjrt::device {
namespace {

thread_local c10::DeviceIndex chosen = 0;

}  // namespace

c10::DeviceIndex device_index(int64_t index) {
  if (index == 0) return 0;
  const int64_t count = engine().device_count();
  TORCH_CHECK(index > 0 && index < count, "pjrt: invalid device ordinal ", index, ": the plugin has ", count, " device",
              count == 1 ? "; use pjrt:0" : c10::str("s; use pjrt:0 to pjrt:", count - 1));
  return static_cast<c10::DeviceIndex>(index);
}

c10::DeviceIndex current_device() { return chosen; }

void set_current_device(c10::DeviceIndex index) {
  if (index >= 0 && index != chosen) chosen = device_index(index);
}

void set_current_device_unchecked(c10::DeviceIndex index) noexcept {
  if (index >= 0) chosen = index;
}

}  // namespace tpjrt::device
