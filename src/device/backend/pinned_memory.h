// Pinned memory: the result of Tensor.pin_memory(), DataLoader(pin_memory=True) and factories with pin_memory=True.
//
// It is ordinary memory of the host, because copies to the device are taken immediately from any memory. But a tensor
// reports whether it was pinned, and programs ask.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace tpjrt::device {

// Returns PyTorch's host allocator for the device.
at::HostAllocator* pinned_allocator();
// Returns whether the address is in memory of pinned_allocator().
bool is_pinned(const void* data);

}  // namespace tpjrt::device
