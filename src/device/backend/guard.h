// The device guard and PyTorch's hooks: what the device is asked for as a device, and streams and events as they are here.
//
// There is one stream a device, its queue: work runs in the order in which it is synced. An event is a moment in the queue;
// recording one starts what is pending, so that it means all calls before it.
#pragma once

namespace tpjrt::device {

void install_guard();

}  // namespace tpjrt::device
