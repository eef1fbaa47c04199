// Shape functions of common ops whose Meta kernels are Python functions. These take up to 10 ms for each new shape,
// and the first one that a process calls imports torch._dynamo, which takes more than a second.
#pragma once

#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <vector>

namespace tpjrt::device {

// at::empty_like of a Meta tensor, which is a Python function as well.
at::Tensor made_like(const at::Tensor& x, const at::TensorOptions& options);
at::Tensor made_like(const at::Tensor& x, const at::TensorOptions& options, at::MemoryFormat format);

// Returns the results of the op's Meta kernel for these arguments (on Meta), or nothing for an unusual call, for
// which Meta's own kernel is called. Usual calls have one dtype, mostly a floating one, and no mistake.
using ShapeFunction = std::optional<torch::jit::Stack> (*)(const torch::jit::Stack& arguments);
// Returns null for an op that has none.
ShapeFunction shape_function(const std::string& name);

}  // namespace tpjrt::device
