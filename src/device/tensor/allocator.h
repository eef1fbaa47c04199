// Addresses of storages, and the device's memory statistics for torch.accelerator.
//
// A storage's pointer is a unique address in a mapping that can't be read. The memory itself is the plugin's, and is
// allocated and freed with the values (engine.h, MemoryUse).
//
// The device that is current in this thread.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

namespace tpjrt::device {

// Marks storages as this device's. Its allocations are addresses without memory.
c10::Allocator* allocator();
// Returns a new address, which no other storage has or had.
c10::DataPtr next_address(c10::DeviceIndex device);

// Returns the index if the plugin has such a device; otherwise throws. Index 0 is valid without starting a client.
c10::DeviceIndex device_index(int64_t index);

c10::DeviceIndex current_device();
// Sets the current device. Throws for an index that the plugin doesn't have; ignores a negative one.
void set_current_device(c10::DeviceIndex index);
// Sets the current device to an index that is known to be valid.
void set_current_device_unchecked(c10::DeviceIndex index) noexcept;

}  // namespace tpjrt::device
