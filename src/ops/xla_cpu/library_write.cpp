// Writes through strides that call PyTorch (src/kernels/cpu/write.cpp).
#include <algorithm>

#include "hlo/type.h"
#include "ops/claims/claims.h"
#include "ops/movement/strided_write.h"

namespace tpjrt::ops {
namespace {

// Returns whether PyTorch writes a small part of a large tensor, such as a row of a key cache. XLA writes in place as
// well, but in two cases copies the whole tensor first: if it is bfloat16, which XLA converts to float32 and back,
// and if the update is computed from what it overwrites (`cache.narrow(2, 5, 1).mul_(x)`), which XLA reads in the
// same loop.
bool is_claimed(const Emit& e, const Value& base, const Value& update) {
  const bool copies =
      e.backend().carrier(base.element()) != base.element() || e.overwrites() != Overwrites::kNothingRead;
  const int64_t written = update.type.elements(), elements = base.type.elements();
  if (!copies || written == 0 || base.element() != update.element()) return false;
  return ops::is_claimed(Heavy::kWrite, base.element(), {.work = elements, .columns = elements / written});
}

bool is_row_major(const graph::TensorType& type) {
  const auto order = type.memory_order();
  return std::is_sorted(order.begin(), order.end());
}

}  // namespace

std::optional<Value> library_write(Emit& e, const Call& c) {
  const Value base = c.tensor("base");
  const Dims strides = c.ints("strides");
  const Value update = without_shared(e, c.tensor("update"), strides);
  if (!is_claimed(e, base, update) || !is_row_major(c.type("base"))) return {};
  return e.call_kernel("torch_pjrt.write", {base, update, c.scalar(e, "offset", ElementType::kS64)}, {base.type},
                       {{"strides", hlo::attribute(strides)}}, {}, 0)[0];
}

}  // namespace tpjrt::ops
