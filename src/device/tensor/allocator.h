// Addresses of storages, and the device's memory statistics for torch.accelerator.
//
// A storage's pointer is a unique address in a mapping that can't be read. The memory itself is the plugin's, and is
// allocated and freed with the values (engine.h, MemoryUse).
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

namespace tpjrt::device {

// Marks storages as this device's. Its allocations are addresses without memory.
c10::Allocator* allocator();
// Returns a new address, which no other storage has or had.
c10::DataPtr next_address(c10::DeviceIndex device);

}  // namespace tpjrt::device
