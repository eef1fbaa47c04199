// Which of the devices is current in this thread.
#pragma once

#include <c10/core/Device.h>

namespace tpjrt::device {

c10::DeviceIndex current_device();
// Throws for an index the plugin doesn't have. Index 0 is valid without starting a client.
void set_current_device(c10::DeviceIndex index);
// The same for an index that is known to be one.
void set_current_device_unchecked(c10::DeviceIndex index) noexcept;

}  // namespace tpjrt::device
