// Batch norms that call PyTorch's kernels (src/kernels/cpu/normalization.cpp).
#include "ops/reduction/normalization.h"

#include "hlo/attribute.h"
#include "ops/claims/claims.h"
#include "ops/contraction/correlation.h"
#include "ops/rule/dims.h"

namespace tpjrt::ops {
namespace {

// PyTorch computes the batch norm where convolutions call oneDNN, so that images are NHWC: XLA:CPU sums such images
// channel by channel, which takes ten times as long as memory order. Evaluation sums nothing.
bool is_claimed(const Emit& e, const Value& x) {
  return x.rank() == 4 &&
         ops::is_claimed(Heavy::kBatchNorm, x.element(), {x.type.elements()}, e.is_nhwc() ? kImagesLast : kStraight);
}

}  // namespace

std::optional<Values> library_batch_norm(Emit& e, const Value& x, const Value& weight, const Value& bias, double eps) {
  if (!is_claimed(e, x)) return {};
  const Dims order = channels_last(x.rank());
  return e.call_kernel("torch_pjrt.batch_norm", {x, weight, bias}, {x.type, weight.type, weight.type, weight.type},
                       {{"eps", hlo::attribute(eps)}}, {{order}, {order}});
}

std::optional<Values> library_batch_norm_gradients(Emit& e, const Value& dy, const Value& x, const Value& weight,
                                                   const Value& mean, const Value& rstd, double eps) {
  if (!is_claimed(e, x) || dy.element() != x.element()) return {};
  const Dims order = channels_last(x.rank());
  return e.call_kernel("torch_pjrt.batch_norm_backward", {dy, x, weight, mean, rstd},
                       {x.type, weight.type, weight.type}, {{"eps", hlo::attribute(eps)}}, {{order, order}, {order}});
}

}  // namespace tpjrt::ops
