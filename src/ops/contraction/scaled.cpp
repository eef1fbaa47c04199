// Products of float8 matrices with scales: _scaled_mm, _scaled_mm_v2.
//
// With one scale for a matrix, or one for each row and column, the product is of the float8 operands and is scaled
// afterwards, so a compiler for hardware with float8 units recognizes it. XLA:CPU converts the operands itself, in
// the same time. With scales of blocks along the inner dimension, the operands are scaled before the product. MX
// scales use XLA's own composite.
#include <algorithm>

#include "ops/rule/dims.h"
#include "ops/rule/precision.h"
#include "ops/rule/rules.h"

namespace tpjrt::ops {
namespace {

constexpr ElementType kAccumulated = ElementType::kF32;
constexpr int64_t kMxBlock = 32;  // elements of a row that share one MX scale
constexpr int64_t kBlock = 128;   // elements, or 128 by 128 of them, that share one float32 scale

int64_t blocks_in(int64_t size, int64_t block) { return (size + block - 1) / block; }

// Returns the product plus the bias, if there is one.
Value biased(Emit& e, const Call& c, const Value& product) {
  if (!c.has("bias")) return product;
  return e.add(product, e.broadcast_to(e.to(c.tensor("bias"), kAccumulated), product.dims()));
}

Value scaled_product(Emit& e, const Call& c, const Value& scale_a, const Value& scale_b) {
  const Value a = c.tensor("self"), b = c.tensor("mat2");
  Value product = e.dot_general(a, b, {{}, {}, {1}, {0}}, kAccumulated, product_precision(e, kAccumulated));
  for (const Value& scale : {scale_a, scale_b}) {
    product = e.mul(product, e.broadcast_to(e.to(scale, kAccumulated), product.dims()));
  }
  return product;
}

// Expands a matrix of scales, one for each block, to the size `dims` of the matrix that they scale. The last block
// may be cut.
Value spread(Emit& e, const Value& scale, const Dims& dims, const Dims& block) {
  const Dims count = scale.dims();
  Value each = e.broadcast_in_dim(scale, {count[0], block[0], count[1], block[1]}, {0, 2});
  each = e.reshape(each, {count[0] * block[0], count[1] * block[1]});
  return e.slice_dim(e.slice_dim(each, 0, 0, dims[0]), 1, 0, dims[1]);
}

// Returns a (m, k) times the transpose of b (n, k), each multiplied with its scales first.
Value product_of_scaled(Emit& e, const Value& a, const Value& scale_a, const Value& b, const Value& scale_b) {
  const auto scaled = [&](const Value& x, const Value& scale) {
    return e.mul(e.to(x, kAccumulated), e.to(scale, kAccumulated));
  };
  return e.dot_general(scaled(a, scale_a), scaled(b, scale_b), {{}, {}, {1}, {1}}, kAccumulated,
                       product_precision(e, kAccumulated));
}

// Returns MX scales in PyTorch's layout (SwizzleType.SWIZZLE_32_4_4) as a plain matrix of (rows, blocks). The layout
// has padded tiles of 128 rows by 4 blocks, in which 4 rows are side by side.
Value from_tiles(Emit& e, const Value& scales, int64_t rows, int64_t blocks) {
  const int64_t down = blocks_in(rows, 128), across = blocks_in(blocks, 4);
  Value tiles = e.reshape(scales, {down, across, 32, 4, 4});
  tiles = e.reshape(e.transpose(tiles, {0, 3, 2, 1, 4}), {down * 128, across * 4});
  return e.slice_dim(e.slice_dim(tiles, 0, 0, rows), 1, 0, blocks);
}

Value mx_product(Emit& e, const Call& c, const Value& scale_a, const Value& scale_b) {
  const Value a = c.tensor("self"), b = e.transpose(c.tensor("mat2"), {1, 0});
  const int64_t k = a.dims()[1], blocks = blocks_in(k, kMxBlock);
  const Values operands{a, b, from_tiles(e, scale_a, a.dims()[0], blocks), from_tiles(e, scale_b, b.dims()[0], blocks)};
  const auto body = [&](const Values& given) -> Values {
    const auto each = [&](size_t scale, size_t of) { return spread(e, given[scale], given[of].dims(), {1, kMxBlock}); };
    return {product_of_scaled(e, given[0], each(2, 0), given[1], each(3, 1))};
  };
  if (k % kMxBlock != 0) return body(operands)[0];  // the composite takes whole blocks
  return e.composite("xla.scaled_dot",
                     {{"dimension_numbers", "[[[1], [1]], [[], []]]"}, {"preferred_element_type", "f32"}}, operands,
                     body)[0];
}

// aten::_scaled_mm: scales of whole matrices; of their rows (m, 1) and columns (1, n); of blocks of 128, or 128 by
// 128; or MX scales, in tiles. A float8 result is divided by scale_result.
Values scaled_mm(Emit& e, const Call& c) {
  const Value a = c.tensor("self"), b = c.tensor("mat2");
  const Value scale_a = c.tensor("scale_a"), scale_b = c.tensor("scale_b");
  const auto blocks_of = [](const Value& scale, const Dims& of) {  // along either dimension
    Dims block;
    for (const size_t d : {size_t{0}, size_t{1}}) block.push_back(scale.dims()[d] == of[d] ? 1 : kBlock);
    return block;
  };
  const bool whole = count_of(scale_a.dims()) == 1 && count_of(scale_b.dims()) == 1;
  Value product = a;
  if (scale_a.element() == ElementType::kF8E8M0FNU) {
    product = mx_product(e, c, scale_a, scale_b);
  } else if (scale_a.element() != ElementType::kF32) {
    throw Unsupported("scales that are neither float32 nor float8_e8m0fnu");
  } else if (whole || (scale_a.dims() == Dims{a.dims()[0], 1} && scale_b.dims() == Dims{1, b.dims()[1]})) {
    product = scaled_product(e, c, scale_a, scale_b);
  } else {
    const Value each_a = spread(e, scale_a, a.dims(), blocks_of(scale_a, a.dims()));
    const Value each_b = spread(e, scale_b, b.dims(), blocks_of(scale_b, b.dims()));
    product = product_of_scaled(e, a, each_a, e.transpose(b, {1, 0}), e.transpose(each_b, {1, 0}));
  }
  product = biased(e, c, product);
  if (c.has("scale_result") && c.has("out_dtype") && c10::elementSize(c.result().dtype) == 1) {
    product = e.div(product, e.broadcast_to(e.to(c.tensor("scale_result"), kAccumulated), product.dims()));
  }
  return {e.as(product, c.result())};
}

// torch.nn.functional.ScalingType
enum Scaling : int64_t { kWhole = 0, kRows = 1, kMx = 3, kRowsOfBlock = 4, kBlocks = 5 };

// Expands float32 scales of blocks to a matrix of rows, (rows, k), in either of the two layouts.
Value spread_blocks(Emit& e, const Value& scale, int64_t recipe, const Dims& dims) {
  if (recipe == kRowsOfBlock) return spread(e, scale, dims, {1, kBlock});
  const Value transposed = e.transpose(scale, {1, 0});  // (k blocks, padded to a multiple of 4; blocks of rows)
  return spread(e, e.slice_dim(transposed, 1, 0, blocks_in(dims[1], kBlock)), dims, {kBlock, kBlock});
}

// aten::_scaled_mm_v2: the call says what its scales apply to, see `Scaling`.
Values scaled_mm_v2(Emit& e, const Call& c) {
  const Dims of_a = c.ints("recipe_a"), of_b = c.ints("recipe_b"), dims = c.ints("contraction_dim");
  if (of_a.size() != 1 || of_b.size() != 1) throw Unsupported("scales of two levels (NVFP4)");
  if (!dims.empty() && dims != Dims{1, 0}) throw Unsupported("contraction_dim other than (1, 0)");
  const Value a = c.tensors("scale_a").at(0), b = c.tensors("scale_b").at(0);
  const int64_t recipe_a = of_a[0], recipe_b = of_b[0];
  const auto swizzled = [&](const char* of) {
    const Dims kinds = c.ints(of);
    return std::any_of(kinds.begin(), kinds.end(), [](int64_t kind) { return kind != 0; });
  };
  const auto is_of_blocks = [](int64_t recipe) { return recipe == kRowsOfBlock || recipe == kBlocks; };
  const auto count = [](const Value& x) { return count_of(x.dims()); };
  Value product = a;
  if (recipe_a == kMx && recipe_b == kMx && swizzled("swizzle_a") && swizzled("swizzle_b")) {
    product = mx_product(e, c, a, b);
  } else if (swizzled("swizzle_a") || swizzled("swizzle_b")) {
    throw Unsupported("swizzled scales that are no MX scales");
  } else if (recipe_a == recipe_b && (recipe_a == kWhole || recipe_a == kRows)) {
    product = scaled_product(e, c, e.reshape(a, {count(a), 1}), e.reshape(b, {1, count(b)}));
  } else if (is_of_blocks(recipe_a) && is_of_blocks(recipe_b)) {
    const Value x = c.tensor("self"), y = e.transpose(c.tensor("mat2"), {1, 0});
    product =
        product_of_scaled(e, x, spread_blocks(e, a, recipe_a, x.dims()), y, spread_blocks(e, b, recipe_b, y.dims()));
  } else {
    throw Unsupported("scales of blocks of 16 (NVFP4), or of two kinds");
  }
  return {e.as(biased(e, c, product), c.result())};
}

}  // namespace

void add_scaled_mm_rules(RuleTable& rules) {
  rules.add_composite("aten::_scaled_mm", scaled_mm);
  rules.add_composite("aten::_scaled_mm_v2", scaled_mm_v2);
}

}  // namespace tpjrt::ops
