// Products of float8 matrices with scales: _scaled_mm, _scaled_mm_v2.
//
// The product is of the float8 operands, and the scales stand outside of it: whoever has units for it sees that.
// XLA:CPU converts the operands itself, in the same time.
#include <algorithm>

#include "ops/rule/dims.h"
#include "ops/rule/precision.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace {

constexpr ElementType kAccumulated = ElementType::kF32;

Value scaled_product(Emit& e, const Call& c, const Value& scale_a, const Value& scale_b) {
  const Value a = c.tensor("self"), b = c.tensor("mat2");
  const hlo::Dims dims = e.type_of(c.result()).dims;
  Value product = e.dot_general(a, b, {{}, {}, {1}, {0}}, kAccumulated, precision_of(kAccumulated));
  for (const Value& scale : {scale_a, scale_b}) {
    product = e.mul(product, e.broadcast_to(e.to(scale, kAccumulated), dims));
  }
  if (c.has("bias")) product = e.add(product, e.broadcast_to(e.to(c.tensor("bias"), kAccumulated), dims));
  return product;
}

// aten::_scaled_mm: scales of the whole matrices, or (m, 1) and (1, n), of their rows and columns. A float8 result that
// was asked for is divided by scale_result.
Values scaled_mm(Emit& e, const Call& c) {
  Value product = scaled_product(e, c, c.tensor("scale_a"), c.tensor("scale_b"));
  if (c.has("scale_result") && c.has("out_dtype") && c10::elementSize(c.result().dtype) == 1) {
    product = e.div(product, e.broadcast_to(e.to(c.tensor("scale_result"), kAccumulated), product.dims()));
  }
  return {e.as(product, c.result())};
}

// aten::_scaled_mm_v2: one scale a matrix, or one a row of the first and a column of the second.
Values scaled_mm_v2(Emit& e, const Call& c) {
  const hlo::Dims whole{0}, rows{1};  // torch.nn.functional.ScalingType
  const hlo::Dims recipe = c.ints("recipe_a");
  const auto none = [](const hlo::Dims& numbers) {
    return std::all_of(numbers.begin(), numbers.end(), [](int64_t number) { return number == 0; });
  };
  if (recipe != c.ints("recipe_b") || (recipe != whole && recipe != rows) || !none(c.ints("swizzle_a")) ||
      !none(c.ints("swizzle_b")) || !c.ints("contraction_dim").empty()) {
    throw Unsupported("scales of blocks, swizzled scales and contraction_dim");
  }
  const Value a = c.tensors("scale_a").at(0), b = c.tensors("scale_b").at(0);
  const auto count = [](const Value& x) { return count_of(x.dims()); };
  return {e.as(scaled_product(e, c, e.reshape(a, {count(a), 1}), e.reshape(b, {1, count(b)})), c.result())};
}

}  // namespace

void add_scaled_mm_rules(RuleTable& rules) {
  rules.add_composite("aten::_scaled_mm", scaled_mm);
  rules.add_composite("aten::_scaled_mm_v2", scaled_mm_v2);
}

}  // namespace tpjrt::ops
