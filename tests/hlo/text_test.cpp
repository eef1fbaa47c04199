// The builder's exact output.
#include <gtest/gtest.h>

#include <limits>

#include "hlo/type.h"
#include "modules.h"

namespace tpjrt::hlo::test {
namespace {

// Returns the text of the ops that `build` emits, without the module around them.
std::string body(const std::function<void(Builder&)>& build) {
  Builder b;
  build(b);
  std::string text = b.finish({});
  size_t begin = text.find("{\n", text.find("@main")) + 2, end = text.rfind("    return");
  return text.substr(begin, end - begin);
}

std::string constant(double value, ElementType element) {
  std::string text = body([&](Builder& b) { b.constant(value, {element, {}}); });
  size_t begin = text.find('<') + 1;
  return text.substr(begin, text.find("> :") - begin);
}

TEST(Text, WholeModule) {
  Builder b("mlp");
  Value x = b.parameter(f32({2, 3})), w = b.parameter(f32({3, 4}));
  Value y = b.dot_general(x, w, {{}, {}, {1}, {0}}, ElementType::kF32);
  b.set_location("model.py", 7);
  Value z = b.binary("maximum", y, b.constant(0.0, y.type));
  b.set_location("", 0);
  EXPECT_EQ(b.size(), 3);
  EXPECT_EQ(b.finish({z}), R"(module @"mlp" {
  func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<3x4xf32>) -> (tensor<2x4xf32>) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    %1 = stablehlo.constant dense<0.0> : tensor<2x4xf32> loc("model.py":7:0)
    %2 = stablehlo.maximum %0, %1 : tensor<2x4xf32> loc("model.py":7:0)
    return %2 : tensor<2x4xf32>
  }
}
)");
}

TEST(Text, NoneWhereItIsOnlyAsked) {
  for (const Module& module : modules()) {
    Builder asked(module.op), written(module.op);
    asked.without_text();
    const Values values = module.build(asked), expected = module.build(written);
    ASSERT_EQ(values.size(), expected.size()) << module.op;
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i].type, expected[i].type) << module.op;
    EXPECT_EQ(asked.size(), written.size()) << module.op;
    EXPECT_EQ(asked.finish(values), "") << module.op;
  }
}

TEST(Text, WithoutLocations) {
  const auto module = [](const std::string& file, bool located) {
    Builder b(" loc(\"x\":1:0)\n");
    Value x = b.parameter(f32({2}));
    if (located) b.set_location(file, 7);
    Value y =
        b.sort({x}, 0, true, [&](const Values& a) -> Values { return {b.compare(Comparison::kLt, a[0], a[1])}; })[0];
    return b.finish({b.unary("negate", y)});
  };
  const std::string plain = module("", false);
  EXPECT_NE(module("model.py", true), plain);
  EXPECT_EQ(without_locations(module("model.py", true)), plain);
  EXPECT_EQ(without_locations(module("a \" loc(\"\nb.py", true)), plain);
  EXPECT_EQ(without_locations(plain), plain);
}

TEST(Text, Alias) {
  Builder b;
  Value x = b.parameter(f32({2}));
  Value y = b.unary("negate", x);
  b.alias(0, 0);
  EXPECT_NE(b.finish({y}).find("@main(%arg0: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> (tensor<2xf32>)"),
            std::string::npos);
}

TEST(Text, OrdersInMemory) {
  Builder b;
  Value x = b.parameter(f32({2, 3}), {0, 1}), y = b.parameter(f32({2, 3}));
  b.alias(0, 1);
  const std::string text = b.finish({y, x}, {{}, {0, 1}});
  EXPECT_NE(text.find("%arg0: tensor<2x3xf32> {mhlo.layout_mode = \"{0,1}\", tf.aliasing_output = 1 : i32}, "
                      "%arg1: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32> {mhlo.layout_mode = \"{0,1}\"})"),
            std::string::npos);
}

TEST(Text, AnAliasLiesAlike) {
  Builder b;
  Value x = b.parameter(f32({2, 3}), {0, 1});
  b.alias(0, 0);
  EXPECT_THROW(b.finish({x}), Error);
}

TEST(Text, RegionsAreIndented) {
  EXPECT_EQ(body([](Builder& b) {
              Value x = b.parameter(f32({2}));
              b.sort({x}, 0, true, [&](const Values& a) -> Values { return {b.compare(Comparison::kLt, a[0], a[1])}; });
            }),
            R"(    %1 = "stablehlo.sort"(%arg0) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%b1: tensor<f32>, %b2: tensor<f32>):
      %0 = stablehlo.compare LT, %b1, %b2, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %0 : tensor<i1>
    }) : (tensor<2xf32>) -> tensor<2xf32>
)");
}

TEST(Text, NoOpsEmitNothing) {
  EXPECT_EQ(body([](Builder& b) {
              Value x = b.parameter(f32({2, 3}));
              b.convert(b.reshape(b.transpose(b.slice(x, {0, 0}, {2, 3}, {1, 1}), {0, 1}), {2, 3}), ElementType::kF32);
              b.concatenate({b.reverse(x, {})}, 0);
            }),
            "");
}

TEST(Constant, DecimalsAreShortest) {
  EXPECT_EQ(constant(1, ElementType::kF32), "1.0");
  EXPECT_EQ(constant(-0.0, ElementType::kF32), "-0.0");
  EXPECT_EQ(constant(0.1, ElementType::kF32), "0.1");
  EXPECT_EQ(constant(0.1, ElementType::kF64), "0.1");
  EXPECT_EQ(constant(1e-5, ElementType::kF32), "1.0e-05");
  EXPECT_EQ(constant(1e300, ElementType::kF64), "1.0e+300");
  EXPECT_EQ(constant(1.0 / 3, ElementType::kF64), "0.3333333333333333");
  EXPECT_EQ(constant(std::numeric_limits<float>::max(), ElementType::kF32), "3.4028235e+38");
}

TEST(Constant, RoundsToTheType) {
  EXPECT_EQ(constant(1.0 + 0x1p-9, ElementType::kBF16), "1.0");
  EXPECT_EQ(constant(1.0 + 0x1p-7, ElementType::kBF16), "1.0078125");
  EXPECT_EQ(constant(65520.0, ElementType::kF16), "0x7C00");  // rounds beyond the largest
  EXPECT_EQ(constant(0x1p-24, ElementType::kF16), "5.9604645e-08");
  EXPECT_EQ(constant(0x1p-25, ElementType::kF16), "0.0");
}

TEST(Constant, SpecialValues) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(constant(infinity, ElementType::kF32), "0x7F800000");
  EXPECT_EQ(constant(-infinity, ElementType::kF64), "0xFFF0000000000000");
  EXPECT_EQ(constant(-infinity, ElementType::kBF16), "0xFF80");
  EXPECT_EQ(constant(nan, ElementType::kF16), "0x7E00");
  EXPECT_EQ(constant(nan, ElementType::kF8E4M3FN), "0x7F");
  EXPECT_EQ(constant(nan, ElementType::kF8E8M0FNU), "0xFF");
  EXPECT_EQ(constant(0, ElementType::kF8E8M0FNU), "0x00");  // 2^-127, the least value
  EXPECT_EQ(constant(-2.9, ElementType::kF8E8M0FNU), "0x80");
  EXPECT_EQ(constant(1.5, ElementType::kF8E8M0FNU), "0x80");
  EXPECT_EQ(constant(1e39, ElementType::kF32), "0x7F800000");
}

TEST(Constant, OfOtherTypes) {
  EXPECT_EQ(constant(2.9, ElementType::kS32), "2");
  EXPECT_EQ(constant(-1, ElementType::kU8), "255");
  EXPECT_EQ(constant(0.5, ElementType::kPred), "true");
  EXPECT_EQ(constant(2, ElementType::kC64), "(2.0, 0.0)");
  EXPECT_EQ(body([](Builder& b) { b.constant_u64(~uint64_t{0}, {ElementType::kU64, {}}); }),
            "    %0 = stablehlo.constant dense<18446744073709551615> : tensor<ui64>\n");
  EXPECT_EQ(body([](Builder& b) { b.constant_dense(std::vector<int64_t>{1, 2, 3, 4}, s32({2, 2})); }),
            "    %0 = stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>\n");
  EXPECT_EQ(body([](Builder& b) { b.constant(1.0, f32({0, 2})); }),
            "    %0 = stablehlo.constant dense<> : tensor<0x2xf32>\n");
}

Values negated_sum(Builder& b, const Values& a) { return {b.unary("negate", b.binary("add", a[0], a[1]))}; }

TEST(Function, CompositesOfEqualTextShareOne) {
  Builder b("m");
  Value x = b.parameter(f32({2}));
  b.set_location("model.py", 7);
  const auto body = [&](const Values& a) -> Values {
    (void)b.unary("tanh", a[0]);  // unused
    return negated_sum(b, a);
  };
  Value y = b.composite("my.op", {{"eps", attribute(0.5)}, {"mode", attribute("a\"b")}}, {x, x}, body)[0];
  b.set_location("model.py", 8);
  Value z = b.composite("my.op", {}, {y, x}, body)[0];
  EXPECT_EQ(without_locations(b.finish({z})), R"(module @"m" {
  func.func public @main(%arg0: tensor<2xf32>) -> (tensor<2xf32>) {
    %0 = stablehlo.composite "my.op" %arg0, %arg0 {composite_attributes = {eps = 0.5 : f64, mode = "a\"b"}, decomposition = @"my.op.90e7df89121a1d33", version = 1 : i32} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %1 = stablehlo.composite "my.op" %0, %arg0 {decomposition = @"my.op.90e7df89121a1d33", version = 1 : i32} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    return %1 : tensor<2xf32>
  }
  func.func private @"my.op.90e7df89121a1d33"(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>) -> (tensor<2xf32>) {
    %1 = stablehlo.add %arg0, %arg1 : tensor<2xf32>
    %2 = stablehlo.negate %1 : tensor<2xf32>
    return %2 : tensor<2xf32>
  }
}
)");
}

TEST(Function, CompositesAsCalls) {
  Builder b;
  b.set_composites_as_calls();
  Value x = b.parameter(f32({2}));
  const std::string text = b.finish(
      b.composite("my.op", {{"eps", attribute(0.5)}}, {x, x}, [&](const Values& a) { return negated_sum(b, a); }));
  EXPECT_NE(text.find("%0 = func.call @\"my.op."), std::string::npos) << text;
  EXPECT_EQ(text.find("composite"), std::string::npos) << text;
}

TEST(Function, KnowsWhatItsArgumentsAreMadeOf) {
  Builder b;
  Value x = b.parameter(f32({2, 3})), t = b.transpose(x, {1, 0}), zero = b.constant(0.0, f32({3, 2}));
  const Values results = b.call("f", {t, zero}, [&](const Values& a) -> Values {
    EXPECT_NE(b.transposed_from(a[0]), nullptr);
    return {b.binary("add", a[0], a[1]), b.unary("negate", *b.transposed_from(a[0]))};
  });
  const std::string text = b.finish(results);
  EXPECT_NE(text.find("optimization_barrier"), std::string::npos) << "an addition of zero: " << text;
}

TEST(Function, CapturesNothing) {
  Builder b;
  Value x = b.parameter(f32({2}));
  try {
    b.call("f", {x}, [&](const Values&) -> Values { return {b.unary("negate", x)}; });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[stablehlo.negate] operand is a value of another function");
  }
  EXPECT_NE(b.finish({b.unary("tanh", x)}).find("%0 = stablehlo.tanh %arg0"), std::string::npos);
}

TEST(Function, NeededLeavesOutTheRest) {
  Builder b;
  Value x = b.parameter(f32({2}));
  const Values kept = b.needed([&]() -> Values {
    Value sorted =
        b.sort({x}, 0, true, [&](const Values& a) -> Values { return {b.compare(Comparison::kLt, a[0], a[1])}; })[0];
    (void)b.sort({sorted}, 0, true,
                 [&](const Values& a) -> Values { return {b.compare(Comparison::kGt, a[0], a[1])}; });
    return {b.unary("negate", sorted)};
  });
  const std::string text = b.finish(kept);
  EXPECT_NE(text.find("compare LT"), std::string::npos) << text;
  EXPECT_EQ(text.find("compare GT"), std::string::npos) << text;
}

TEST(Type, Spellings) {
  EXPECT_EQ(to_string(Type{ElementType::kC128, {2, 0}}), "tensor<2x0xcomplex<f64>>");
  EXPECT_EQ(to_string(pred({})), "tensor<i1>");
  EXPECT_EQ((Type{ElementType::kF32, {2, 3}}.elements()), 6);
  EXPECT_TRUE(is_float(ElementType::kF8E5M2FNUZ));
  EXPECT_FALSE(is_integer(ElementType::kPred));
  EXPECT_EQ(real_element(ElementType::kC128), ElementType::kF64);
  EXPECT_EQ(byte_width(ElementType::kC64), 8);
}

}  // namespace
}  // namespace tpjrt::hlo::test
