// Tensor subclasses of Python, which decide in __torch_dispatch__ what a call is.
#pragma once

#include <ATen/core/Tensor.h>

namespace tpjrt::device {

// Is it one, other than those that stand for a plain tensor while PyTorch traces? Installed by the Python room.
using SubclassTest = bool (*)(const at::Tensor& tensor);
void install_subclass_test(SubclassTest test);
bool is_subclass(const at::Tensor& tensor);

}  // namespace tpjrt::device
