// Pinned memory: what Tensor.pin_memory(), DataLoader(pin_memory=True) and factories with pin_memory=True give.
//
// It is ordinary memory of the host, as copies to the device are taken at once from any; but a tensor says whether it was
// pinned, and programs ask.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace tpjrt::device {

// PyTorch's host allocator of the device.
at::HostAllocator* pinned_allocator();
// Does the address lie in memory of pinned_allocator()?
bool is_pinned(const void* data);

}  // namespace tpjrt::device
