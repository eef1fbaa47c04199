// torch.autocast("pjrt").
#pragma once

namespace tpjrt::device {

// Sets whether torch.autocast casts by the CPU's lists of ops in this thread, for functions of CPU tensors that are
// captured, instead of the device's own (CUDA's). Returns whether it did.
bool follow_cpus_autocast(bool follow);

}  // namespace tpjrt::device
