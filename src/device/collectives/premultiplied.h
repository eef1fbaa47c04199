// PREMUL_SUM, a sum with a factor, with which FSDP2 divides gradients (set_gradient_divide_factor). Neither gloo nor
// XLA has it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace tpjrt::device::world {

// Returns `input` times the factor of a PREMUL_SUM, as a new tensor; `input` itself for other reductions. Throws for
// a dtype that NCCL refuses as well.
at::Tensor premultiplied(const at::Tensor& input, const c10d::ReduceOp& op);
// Returns the reduction of premultiplied operands.
c10d::ReduceOp after_factor(const c10d::ReduceOp& op);

}  // namespace tpjrt::device::world
