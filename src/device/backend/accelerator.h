// Selects PyTorch's accelerator where there are two.
//
// Note [Two accelerators]: PyTorch has one accelerator in a process (at::getAccelerator), and a PrivateUse1 backend
// with a name always is it, even on a machine with CUDA. `import torch` loads this package, so that would break
// programs that don't use it. backward() of CUDA tensors fails an assertion of the autograd engine, which finds a
// gradient on an accelerator but no stream of *the* accelerator (pytorch/pytorch#161129: PyTorch assumes one
// accelerator in an environment), and memory for CUDA is pinned by this package's hooks. PyTorch has no way to
// choose. So if it had another accelerator with devices before "pjrt" got its name, that one stays the accelerator:
// calls of at::getAccelerator and at::isAccelerator through the procedure linkage tables of PyTorch's libraries are
// redirected to functions here. To them "pjrt" is a device like "cpu", whose gradients need no streams (its queue is
// in order). Nothing is changed if PyTorch has no other accelerator.
//
// The device guard and PyTorch's hooks: device queries, and streams and events as this device implements them.
//
// Each device has one stream, its queue: work runs in the order in which it is synced. An event is a moment in the
// queue that includes all calls before it.
//
// Pinned memory: the result of Tensor.pin_memory(), DataLoader(pin_memory=True) and factories with pin_memory=True.
//
// It is ordinary memory of the host, because copies to the device are taken immediately from any memory. But a tensor
// reports whether it was pinned, and programs ask.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace tpjrt::device {

// Must be called before "pjrt" gets its name, if PyTorch's accelerator has devices.
void keep_accelerator();

// Returns whether keep_accelerator() was called and there is another accelerator.
bool has_other_accelerator();

// Makes "pjrt" the accelerator in this thread nevertheless, for queries that PyTorch answers for its accelerator
// alone. Returns the previous setting.
bool set_accelerator_here(bool ours);

void install_guard();

// Returns PyTorch's host allocator for the device.
at::HostAllocator* pinned_allocator();
// Returns whether the address is in memory of pinned_allocator().
bool is_pinned(const void* data);

// Makes "pjrt" a torch device: storage, guard, hooks, own kernels and the recorder. Once per process.
void register_device();

// Sets whether torch.autocast casts by the CPU's lists of ops in this thread, for functions of CPU tensors that are
// captured, instead of the device's own (CUDA's). Returns whether it did.
bool follow_cpus_autocast(bool follow);

}  // namespace tpjrt::device
