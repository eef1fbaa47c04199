// Addresses of storages, and the device's memory as torch.accelerator asks for it.
//
// A storage's pointer is a unique address in a mapping that can't be read: the memory itself is the plugin's, and comes
// and goes with the values (engine.h, MemoryUse).
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

namespace tpjrt::device {

// Marks storages as ours. Its allocations are addresses without memory behind them.
c10::Allocator* allocator();
// A new address; never one that another storage has or had.
c10::DataPtr next_address(c10::DeviceIndex device);

}  // namespace tpjrt::device
