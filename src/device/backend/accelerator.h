// Selects PyTorch's accelerator where there are two.
//
// Note [Two accelerators]: PyTorch has one accelerator in a process (at::getAccelerator), and a PrivateUse1 backend
// with a name always is it, even on a machine with CUDA. `import torch` loads this package, so that would break
// programs that don't use it. backward() of CUDA tensors fails an assertion of the autograd engine, which finds a
// gradient on an accelerator but no stream of *the* accelerator (pytorch/pytorch#161129: PyTorch assumes one
// accelerator in an environment), and memory for CUDA is pinned by this package's hooks. PyTorch has no way to
// choose. So if it had another accelerator with devices before "pjrt" got its name, that one stays the accelerator:
// references of PyTorch's libraries to at::getAccelerator and at::isAccelerator are redirected to functions here. To them "pjrt" is a device like "cpu", whose gradients need no streams (its queue is
// in order). Nothing is changed if PyTorch has no other accelerator.
#pragma once

namespace tpjrt::device {

// Must be called before "pjrt" gets its name, if PyTorch's accelerator has devices.
void keep_accelerator();

// Returns whether keep_accelerator() was called and there is another accelerator.
bool has_other_accelerator();

// Makes "pjrt" the accelerator in this thread nevertheless, for queries that PyTorch answers for its accelerator
// alone. Returns the previous setting.
bool set_accelerator_here(bool ours);

}  // namespace tpjrt::device
