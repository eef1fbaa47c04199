// The device guard: which device index is current, and streams and events as they are here.
//
// There is one stream a device: work runs in the order in which it is synced. Events are complete when the device is idle.
#pragma once

#include <c10/core/Device.h>

namespace tpjrt::device {

void install_guard();
c10::DeviceIndex current_device();
// Throws for an index the plugin doesn't have. Index 0 is valid without starting a client.
void set_current_device(c10::DeviceIndex index);

}  // namespace tpjrt::device
