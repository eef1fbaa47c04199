// The device's own kernels for allocation and storage metadata, addresses of storages, and the current device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

#include <optional>

namespace tpjrt::device {

// Addresses of storages. A storage's pointer is a unique address in a mapping that can't be read. The memory itself is
// the plugin's, and is allocated and freed with the values (engine.h, MemoryUse).

// Marks storages as this device's. Its allocations are addresses without memory.
c10::Allocator* allocator();
// Returns a new address, which no other storage has or had.
c10::DataPtr next_address(c10::DeviceIndex device);

// The device that is current in this thread.

// Returns the index if the plugin has such a device; otherwise throws. Index 0 is valid without starting a client.
c10::DeviceIndex device_index(int64_t index);

c10::DeviceIndex current_device();
// Sets the current device. Throws for an index that the plugin doesn't have; ignores a negative one.
void set_current_device(c10::DeviceIndex index);
// Sets the current device to an index that is known to be valid.
void set_current_device_unchecked(c10::DeviceIndex index) noexcept;

// Returns whether the device can hold tensors of this dtype.
bool is_supported(c10::ScalarType dtype);

at::Tensor empty_memory_format(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format);
at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory);
at::Tensor _efficientzerotensor(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                                std::optional<at::Layout> layout, std::optional<at::Device> device,
                                std::optional<bool> pin_memory);
const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size, std::optional<at::MemoryFormat> format);
// Keeps the bytes that fit; new ones are zeros.
void resize_storage(const c10::Storage& storage, size_t nbytes);
at::Tensor& set_source_storage_offset(at::Tensor& self, at::Storage source, int64_t offset, c10::IntArrayRef size,
                                      c10::IntArrayRef stride);
at::Tensor& set_source_storage(at::Tensor& self, at::Storage source);
at::Tensor& set_source_tensor(at::Tensor& self, const at::Tensor& source);
at::Tensor& set_(at::Tensor& self);

}  // namespace tpjrt::device
