// Shape functions of common ops whose Meta kernels are Python functions: these take up to 10 ms for each new shape, and the
// first one that a process calls imports torch._dynamo, which takes more than a second.
#pragma once

#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <vector>

namespace tpjrt::device {

// at::empty_like of a tensor on Meta, which is a Python function there, too.
at::Tensor made_like(const at::Tensor& x, const at::TensorOptions& options);
at::Tensor made_like(const at::Tensor& x, const at::TensorOptions& options, at::MemoryFormat format);

// What the op's Meta kernel gives for these arguments (on Meta). Nothing where a call is not the usual one: of one dtype,
// mostly a floating one, and without a mistake. Then Meta's own kernel is asked.
using ShapeFunction = std::optional<torch::jit::Stack> (*)(const torch::jit::Stack& arguments);
// Null for an op that is not here.
ShapeFunction shape_function(const std::string& name);

}  // namespace tpjrt::device
