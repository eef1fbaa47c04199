// Batch norms that call PyTorch's kernels (src/kernels/cpu/normalization.cpp).
#include "ops/reduction/normalization.h"

#include "hlo/attribute.h"
#include "ops/contraction/correlation.h"
#include "ops/cpu/machine.h"
#include "ops/rule/dims.h"

namespace tpjrt::ops {
namespace {

// Returns whether PyTorch's kernel computes the batch norm. It does where convolutions call oneDNN
// (Note [Whose convolutions]), so that images are NHWC: XLA:CPU sums such images channel by channel, which takes ten
// times as long as memory order. Evaluation sums nothing. In float32 XLA is as fast on other layouts.
bool is_the_librarys(const Emit& e, const Value& x) {
  constexpr int64_t kLeast = 1 << 14;
  const Machine& machine = Machine::here();
  if (x.rank() != 4 || x.type.elements() == 0 || (!machine.takes_all && x.type.elements() < kLeast)) return false;
  if (x.element() == ElementType::kF32) return are_the_librarys(x.element()) && e.images_last();
  return x.element() == ElementType::kBF16 && (machine.takes_all || machine.bf16_dots);
}

}  // namespace

std::optional<Values> library_batch_norm(Emit& e, const Value& x, const Value& weight, const Value& bias, double eps) {
  if (!is_the_librarys(e, x)) return {};
  const Dims order = channels_last(x.rank());
  return e.call_kernel("torch_pjrt.batch_norm", {x, weight, bias}, {x.type, weight.type, weight.type, weight.type},
                       {{"eps", hlo::attribute(eps)}}, {{order}, {order}});
}

std::optional<Values> library_batch_norm_gradients(Emit& e, const Value& dy, const Value& x, const Value& weight,
                                                   const Value& mean, const Value& rstd, double eps) {
  if (!is_the_librarys(e, x) || dy.element() != x.element()) return {};
  const Dims order = channels_last(x.rank());
  return e.call_kernel("torch_pjrt.batch_norm_backward", {dy, x, weight, mean, rstd},
                       {x.type, weight.type, weight.type}, {{"eps", hlo::attribute(eps)}}, {{order, order}, {order}});
}

}  // namespace tpjrt::ops
