// Tensor subclasses of Python, which decide in __torch_dispatch__ what a call is.
#pragma once

#include <ATen/core/Tensor.h>

namespace tpjrt::device {

enum class Subclass {
  kNone,     // a plain tensor, or one that stands for it while PyTorch traces
  kDTensor,  // knows the ops that PyTorch has strategies for, and those that adapt/dtensor.py registers
  kOther,
};

// Installed by the Python room.
using SubclassSource = Subclass (*)(const at::Tensor& tensor);
void install_subclass_source(SubclassSource source);
Subclass subclass_of(const at::Tensor& tensor);
inline bool is_subclass(const at::Tensor& tensor) { return subclass_of(tensor) != Subclass::kNone; }

}  // namespace tpjrt::device
