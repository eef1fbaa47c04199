// Shape functions of ops whose Meta kernels are Python functions and take a millisecond or more, for each new shape.
#pragma once

#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <vector>

namespace tpjrt::device {

// at::empty_like of a tensor on Meta, which is a Python function there, too.
at::Tensor made_like(const at::Tensor& x, const at::TensorOptions& options);
at::Tensor made_like(const at::Tensor& x, const at::TensorOptions& options, at::MemoryFormat format);

// What the op's Meta kernel gives for these arguments (on Meta). Nothing for an op that is not here, and where a call is not
// the usual one: of one floating dtype, and without a mistake. Then Meta's own kernel is asked.
std::optional<std::vector<at::Tensor>> usual_results(const std::string& name, const torch::jit::Stack& arguments);

}  // namespace tpjrt::device
