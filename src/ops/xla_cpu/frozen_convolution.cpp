// Lowers torch_pjrt::frozen_convolution to the CPU's kernel (src/kernels/cpu/frozen_convolution.cpp).
#include "hlo/attribute.h"
#include "ops/contraction/correlation.h"
#include "ops/rule/dims.h"

namespace tpjrt::ops {

Values library_frozen_convolution(Emit& e, const Call& c) {
  const Value x = c.tensor("x");
  const Dims order = channels_last(x.rank());
  Values operands{x};
  Emit::Orders orders{{order}, {order}};
  if (const auto added = c.optional_tensor("added")) {
    operands.push_back(*added);
    orders.operands.push_back(order);
  }
  std::map<std::string, std::string> attributes{{"weight", hlo::attribute(c.integer("weight"))},
                                                {"groups", hlo::attribute(c.integer("groups"))},
                                                {"activation", hlo::attribute(c.string("activation"))}};
  for (const char* name : {"stride", "padding", "dilation"}) attributes[name] = hlo::attribute(c.ints(name));
  return e.call_kernel("torch_pjrt.frozen_convolution", operands, {e.type_of(c.result())}, attributes, orders,
                       c.has("added") ? std::optional<size_t>(1) : std::nullopt);
}

}  // namespace tpjrt::ops
