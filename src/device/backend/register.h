// Registers the device with PyTorch.
#pragma once

namespace tpjrt::device {

// Makes "pjrt" a torch device: storage, guard, hooks, own kernels and the recorder. Once per process.
void register_device();

}  // namespace tpjrt::device
