// Ops whose operands don't fit throw an error that names the op and the operand.
#include <gtest/gtest.h>

#include "modules.h"

namespace tpjrt::hlo::test {
namespace {

// Returns the error, which must be the same if no text is written.
std::string error(const std::function<void(Builder&)>& build) {
  std::string errors[2];
  for (const bool writes : {true, false}) {
    Builder b;
    if (!writes) b.without_text();
    try {
      build(b);
      errors[writes] = "no error";
    } catch (const Error& e) {
      errors[writes] = e.what();
    }
  }
  EXPECT_EQ(errors[0], errors[1]);
  return errors[1];
}

TEST(Error, Elementwise) {
  EXPECT_EQ(error([](Builder& b) { b.binary("add", b.parameter(f32({2})), b.parameter(f32({3}))); }),
            "[stablehlo.add] operands have different types tensor<2xf32> and tensor<3xf32>");
  EXPECT_EQ(error([](Builder& b) { b.unary("tanh", b.parameter(s32({2}))); }),
            "[stablehlo.tanh] does not take tensor<2xi32>");
  EXPECT_EQ(error([](Builder& b) { b.unary("chlo.erf", b.parameter(s32({2}))); }),
            "[chlo.erf] does not take tensor<2xi32>");
  EXPECT_EQ(error([](Builder& b) { b.unary("relu", b.parameter(f32({2}))); }),
            "[stablehlo.relu] is no elementwise op of this arity");
  EXPECT_EQ(error([](Builder& b) {
              Value x = b.parameter(f32({2}));
              b.select(x, x, x);
            }),
            "[stablehlo.select] predicate of type tensor<2xf32> for tensor<2xf32>");
  EXPECT_EQ(error([](Builder& b) { b.unary("negate", Value{}); }),
            "[stablehlo.negate] operand is not a value of this builder");
}

TEST(Error, Shape) {
  EXPECT_EQ(error([](Builder& b) { b.reshape(b.parameter(f32({2, 3})), {4}); }),
            "[stablehlo.reshape] tensor<2x3xf32> to [4]");
  EXPECT_EQ(error([](Builder& b) { b.transpose(b.parameter(f32({2, 3})), {0, 0}); }),
            "[stablehlo.transpose] permutation [0, 0] names a dimension twice");
  EXPECT_EQ(error([](Builder& b) { b.broadcast_in_dim(b.parameter(f32({2})), {3, 4}, {1}); }),
            "[stablehlo.broadcast_in_dim] dimension 0 of tensor<2xf32> does not broadcast to [3, 4] through [1]");
  EXPECT_EQ(error([](Builder& b) { b.slice(b.parameter(f32({2})), {0}, {3}, {1}); }),
            "[stablehlo.slice] 0:3:1 in dimension 0 of tensor<2xf32>");
  EXPECT_EQ(error([](Builder& b) { b.concatenate({b.parameter(f32({2, 3})), b.parameter(f32({2, 4}))}, 0); }),
            "[stablehlo.concatenate] operand 1 of type tensor<2x4xf32> does not fit tensor<2x3xf32> along 0");
  EXPECT_EQ(error([](Builder& b) { b.pad(b.parameter(f32({2})), b.parameter(s32({})), {0}, {1}, {0}); }),
            "[stablehlo.pad] value of type tensor<i32> for tensor<2xf32>");
}

TEST(Error, Linalg) {
  EXPECT_EQ(error([](Builder& b) {
              b.dot_general(b.parameter(f32({2, 3})), b.parameter(f32({4, 5})), {{}, {}, {1}, {0}}, ElementType::kF32);
            }),
            "[stablehlo.dot_general] dimension 1 of tensor<2x3xf32> against dimension 0 of tensor<4x5xf32>");
  EXPECT_EQ(error([](Builder& b) { b.cholesky(b.parameter(f32({2, 3})), true); }),
            "[stablehlo.cholesky] needs a square matrix, has tensor<2x3xf32>");
}

TEST(Error, Regions) {
  EXPECT_EQ(error([](Builder& b) {
              b.reduce({b.parameter(f32({2}))}, {b.constant(0.0, f32({}))}, {0},
                       [&](const Values& a) -> Values { return {b.compare(Comparison::kLt, a[0], a[1])}; });
            }),
            "[stablehlo.reduce] region returns (tensor<i1>), expected (tensor<f32>)");
  EXPECT_EQ(error([](Builder& b) { b.reduce("add", b.parameter(f32({2})), b.constant(0, s32({})), {0}); }),
            "[stablehlo.reduce] initial value 0 of type tensor<i32>, expected tensor<f32>");
}

TEST(Error, LeavesTheBuilderUsable) {
  Builder b;
  Value x = b.parameter(f32({2}));
  EXPECT_THROW(b.sort({x}, 0, true, [&](const Values& a) -> Values { return {b.unary("not", a[0])}; }), Error);
  Value y = b.unary("negate", x);
  EXPECT_EQ(b.finish({y}).find("^bb0"), std::string::npos);
}

}  // namespace
}  // namespace tpjrt::hlo::test
