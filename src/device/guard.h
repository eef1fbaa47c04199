// The device guard: which device index is current, and streams and events as they are here.
//
// There is one stream a device, its queue: work runs in the order in which it is synced. An event is a moment in the queue;
// recording one starts what is pending, so that it means all calls before it.
#pragma once

#include <c10/core/Device.h>

namespace tpjrt::device {

void install_guard();
c10::DeviceIndex current_device();
// Throws for an index the plugin doesn't have. Index 0 is valid without starting a client.
void set_current_device(c10::DeviceIndex index);

}  // namespace tpjrt::device
