// Python's tensor subclasses, which decide in __torch_dispatch__ how a call is handled.
#pragma once

#include <ATen/core/Tensor.h>

namespace tpjrt::device {

enum class Subclass {
  kNone,     // a plain tensor, or a stand-in for one while PyTorch traces
  kDTensor,  // supports ops for which PyTorch, or adapt/dtensor.py, has a strategy
  kOther,
};

// Installed by the Python room.
using SubclassSource = Subclass (*)(const at::Tensor& tensor);
void install_subclass_source(SubclassSource source);
Subclass subclass_of(const at::Tensor& tensor);
inline bool is_subclass(const at::Tensor& tensor) { return subclass_of(tensor) != Subclass::kNone; }

}  // namespace tpjrt::device
