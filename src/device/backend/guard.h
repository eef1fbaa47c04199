// The device guard and PyTorch's hooks: device queries, and streams and events as this device implements them.
//
// Each device has one stream, its queue: work runs in the order in which it is synced. An event is a moment in the
// queue that includes all calls before it.
#pragma once

namespace tpjrt::device {

void install_guard();

}  // namespace tpjrt::device
