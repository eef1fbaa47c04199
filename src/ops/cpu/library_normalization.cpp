// Batch norms that go to PyTorch's kernels (src/kernels/cpu/normalization.cpp).
#include "ops/reduction/normalization.h"

#include "hlo/attribute.h"
#include "ops/cpu/machine.h"
#include "ops/rule/dims.h"

namespace tpjrt::ops {
namespace {

// Where convolutions are the library's (Note [Whose convolutions]), so that images lie with the channels last: XLA:CPU sums such
// images channel by channel, in ten times what it takes in memory's order. In evaluation nothing is summed.
bool is_the_librarys(const Value& x) {
  constexpr int64_t kLeast = 1 << 14;
  if (x.element() != ElementType::kBF16 || x.rank() != 4 || x.type.elements() == 0) return false;
  const Machine& machine = Machine::here();
  return machine.takes_all || (machine.amx && x.type.elements() >= kLeast);
}

}  // namespace

std::optional<Values> library_batch_norm(Emit& e, const Value& x, const Value& weight, const Value& bias, double eps) {
  if (!is_the_librarys(x)) return {};
  const Dims order = channels_last(x.rank());
  return e.call_kernel("torch_pjrt.batch_norm", {x, weight, bias}, {x.type, weight.type, weight.type, weight.type},
                       {{"eps", hlo::attribute(eps)}}, {{order}, {order}});
}

std::optional<Values> library_batch_norm_gradients(Emit& e, const Value& dy, const Value& x, const Value& weight,
                                                   const Value& mean, const Value& rstd, double eps) {
  if (!is_the_librarys(x) || dy.element() != x.element()) return {};
  const Dims order = channels_last(x.rank());
  return e.call_kernel("torch_pjrt.batch_norm_backward", {dy, x, weight, mean, rstd},
                       {x.type, weight.type, weight.type}, {{"eps", hlo::attribute(eps)}}, {{order, order}, {order}});
}

}  // namespace tpjrt::ops
