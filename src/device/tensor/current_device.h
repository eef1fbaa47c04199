// The device that is current in this thread.
#pragma once

#include <c10/core/Device.h>

namespace tpjrt::device {

// Returns the index if the plugin has such a device; otherwise throws. Index 0 is valid without starting a client.
c10::DeviceIndex device_index(int64_t index);

c10::DeviceIndex current_device();
// Sets the current device. Throws for an index that the plugin doesn't have; ignores a negative one.
void set_current_device(c10::DeviceIndex index);
// Sets the current device to an index that is known to be valid.
void set_current_device_unchecked(c10::DeviceIndex index) noexcept;

}  // namespace tpjrt::device
