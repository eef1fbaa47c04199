// Which of the devices is current in this thread.
#pragma once

#include <c10/core/Device.h>

namespace tpjrt::device {

// The index, if the plugin has such a device; else throws. Index 0 is valid without starting a client.
c10::DeviceIndex device_index(int64_t index);

c10::DeviceIndex current_device();
// Throws for an index the plugin doesn't have. A negative one does nothing.
void set_current_device(c10::DeviceIndex index);
// The same for an index that is known to be one.
void set_current_device_unchecked(c10::DeviceIndex index) noexcept;

}  // namespace tpjrt::device
