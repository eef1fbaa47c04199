// PREMUL_SUM, a sum with a factor, which FSDP2 divides gradients by (set_gradient_divide_factor). Neither gloo nor XLA has it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace tpjrt::device::world {

// `input` times the factor of a PREMUL_SUM, a new tensor; `input` itself for other reductions. Throws for a dtype that NCCL refuses,
// too.
at::Tensor premultiplied(const at::Tensor& input, const c10d::ReduceOp& op);
// The reduction that is left once operands are premultiplied.
c10d::ReduceOp after_factor(const c10d::ReduceOp& op);

}  // namespace tpjrt::device::world
