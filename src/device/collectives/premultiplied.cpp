// The product of a PREMUL_SUM, before the sum.
#include "device/collectives/premultiplied.h"

#include <ATen/ops/mul.h>

namespace tpjrt::device::world {

at::Tensor premultiplied(const at::Tensor& input, const c10d::ReduceOp& op) {
  if (op != c10d::ReduceOp::PREMUL_SUM) return input;
  TORCH_CHECK_TYPE(at::isFloatingType(input.scalar_type()) || at::isComplexType(input.scalar_type()),
                   "PREMUL_SUM takes tensors of floating point, and got one of ", input.scalar_type(),
                   "; multiply by the factor, and take ReduceOp.SUM");
  const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(factor, "PREMUL_SUM without a factor; make it with torch.distributed._make_nccl_premul_sum");
  if (!factor->tensor_factor.defined()) return at::mul(input, factor->double_factor);
  return at::mul(input, factor->tensor_factor).to(input.scalar_type());
}

c10d::ReduceOp after_factor(const c10d::ReduceOp& op) {
  return op == c10d::ReduceOp::PREMUL_SUM ? c10d::ReduceOp(c10d::ReduceOp::SUM) : op;
}

}  // namespace tpjrt::device::world
