// Which accelerator PyTorch takes for its own where there are two.
//
// Note [Two accelerators]: PyTorch has one accelerator in a process (at::getAccelerator), and a PrivateUse1 backend with
// a name always is it, even on a machine with CUDA. There that breaks programs that have nothing to do with us, and the
// package is loaded by `import torch`: backward() of CUDA tensors fails an assertion of the autograd engine, which finds
// a gradient on an accelerator but no stream of *the* accelerator (pytorch/pytorch#161129: one accelerator in an
// environment is what is meant), and memory for CUDA is pinned by our hooks. PyTorch has no way to choose. So where it
// had another accelerator before "pjrt" got its name, and that has devices, it stays the accelerator: the calls of
// at::getAccelerator and at::isAccelerator that go through the procedure linkage tables of PyTorch's libraries are led
// to functions of ours. To them "pjrt" is a device like "cpu", whose gradients need no streams (its queue is in order).
// Nothing is touched where PyTorch has no other accelerator.
#pragma once

namespace tpjrt::device {

// To be called before "pjrt" gets its name, where PyTorch's accelerator has devices.
void keep_accelerator();

// Was it called, and is there one?
bool has_other_accelerator();

// Whether "pjrt" is the accelerator in this thread all the same: for what PyTorch tells of its accelerator alone. Gives
// what held before.
bool set_accelerator_here(bool ours);

}  // namespace tpjrt::device
