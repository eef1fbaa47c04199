// Convolutions, their gradients and batch norm as rules call them, on images in NHWC layout.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/randn.h>

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "call.h"
#include "kernels/cpu/frozen_weights.h"
#include "kernels/cpu/team.h"

namespace tpjrt::kernels::test {
namespace {

struct Case {
  std::string name;
  Ints images, weight, stride, padding;
  int64_t groups = 1;
  bool transposed = false;
};

class KernelConvolutions : public testing::TestWithParam<Case> {
 protected:
  KernelConvolutions() { set_team_size(2); }

  // Returns the arguments, followed by those of the window and `mask`.
  static std::vector<OpCall::Argument> with_window(std::vector<OpCall::Argument> arguments, c10::IValue mask = {}) {
    const Case& c = GetParam();
    const Ints ones(c.stride.size(), 1), zeros(c.stride.size(), 0);
    for (const c10::IValue& each : std::vector<c10::IValue>{c.stride, c.padding, ones, c.transposed, zeros, c.groups}) {
      arguments.push_back(given(each));
    }
    if (!mask.isNone()) arguments.push_back(given(mask));
    return arguments;
  }
  static at::Tensor expected(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias) {
    const Case& c = GetParam();
    const Ints ones(c.stride.size(), 1), zeros(c.stride.size(), 0);
    const std::optional<at::Tensor> wide = bias ? std::optional(bias->to(at::kDouble)) : bias;
    return at::convolution(x.to(at::kDouble), w.to(at::kDouble), wide, c.stride, c.padding, ones, c.transposed, zeros,
                           c.groups);
  }
};

TEST_P(KernelConvolutions, AndTheirGradients) {
  const Case& c = GetParam();
  std::vector<at::ScalarType> dtypes{at::kFloat};
  // PyTorch's oneDNN convolves bfloat16 with these instructions alone.
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    dtypes.push_back(at::kBFloat16);
  }
  for (const auto dtype : dtypes) {
    const at::Tensor x = at::randn(c.images).to(dtype), w = (at::randn(c.weight) / 8).to(dtype);
    const int64_t channels = c.transposed ? c.weight[1] * c.groups : c.weight[0];
    const at::Tensor bias = at::randn({channels}).to(dtype), y = expected(x, w, bias);
    const bool row_major = w.numel() > x.numel() + y.numel();
    Call forward(aten_call);
    forward.images(x).operand(w).operand(bias).result_images(y.sizes(), dtype);
    forward.of("aten::convolution", with_window({{.operand = 0, .is_copied = row_major}, operand(1), operand(2)}), {0});
    ASSERT_EQ(forward.run(), "");
    EXPECT_TRUE(near(forward.got_images(), y)) << c10::toString(dtype);

    const at::Tensor dy = (at::randn(y.sizes()) / 8).to(dtype);
    const Ints ones(c.stride.size(), 1), zeros(c.stride.size(), 0);
    const auto [dx, dw, db] =
        at::convolution_backward(dy.to(at::kDouble), x.to(at::kDouble), w.to(at::kDouble), Ints{channels}, c.stride,
                                 c.padding, ones, c.transposed, zeros, c.groups, std::array<bool, 3>{true, true, true});
    Call of_input(aten_call);
    of_input.images(dy).operand(w).result_images(x.sizes(), dtype);
    of_input.of("aten::convolution_backward",
                with_window({{.operand = 0, .is_copied = row_major},
                             {.place = 0, .is_copied = row_major},
                             operand(1),
                             given(Ints{channels})},
                            std::array<bool, 3>{true, false, false}),
                {0});
    ASSERT_EQ(of_input.run(), "");
    EXPECT_TRUE(near(of_input.got_images(), dx)) << c10::toString(dtype);
    Call of_weight(aten_call);
    of_weight.images(dy).images(x).result(w.sizes(), dtype).result({channels}, dtype);
    of_weight.of("aten::convolution_backward",
                 with_window({{.operand = 0, .is_copied = row_major},
                              {.operand = 1, .is_copied = row_major},
                              {.place = 0},
                              given(Ints{channels})},
                             std::array<bool, 3>{false, true, true}),
                 {1, 2});
    ASSERT_EQ(of_weight.run(), "");
    EXPECT_TRUE(near(of_weight.got(0) / 8, dw / 8)) << c10::toString(dtype);
    EXPECT_TRUE(near(of_weight.got(1) / 8, db / 8)) << c10::toString(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, KernelConvolutions,
                         testing::Values(Case{"Row", {2, 5, 31}, {7, 5, 3}, {2}, {1}},
                                         Case{"Plain", {2, 5, 9, 7}, {3, 5, 3, 3}, {1, 1}, {1, 1}},
                                         Case{"Strided", {1, 3, 17, 13}, {8, 3, 5, 3}, {2, 3}, {2, 0}},
                                         Case{"Grouped", {2, 6, 8, 8}, {9, 2, 3, 3}, {1, 1}, {0, 0}, 3},
                                         Case{"Depthwise", {1, 16, 11, 11}, {16, 1, 3, 3}, {1, 1}, {1, 1}, 16},
                                         Case{"ForATeam", {2, 16, 20, 20}, {32, 16, 3, 3}, {1, 1}, {1, 1}},
                                         Case{"MoreWeightsThanImages", {1, 32, 3, 3}, {48, 32, 3, 3}, {1, 1}, {1, 1}},
                                         Case{"Transposed", {2, 4, 5, 6}, {4, 3, 3, 3}, {2, 2}, {1, 1}, 1, true},
                                         Case{"Volume", {1, 3, 5, 6, 7}, {4, 3, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
                                         Case{"NoImages", {0, 3, 8, 8}, {4, 3, 3, 3}, {1, 1}, {1, 1}}),
                         [](const auto& info) { return info.param.name; });

struct Frozens : testing::Test {
  Frozens() {
    if (!at::hasMKLDNN()) skipped = true;
    set_team_size(2);
  }
  void SetUp() override {
    if (skipped) GTEST_SKIP() << "this torch has no oneDNN";
  }
  void put(FrozenWeight& place, const at::Tensor& w) const { place.put(w, bias, {ones, ones, ones, 1}, x.sizes()); }
  at::Tensor expected(const at::Tensor& w) const {
    return at::convolution(x, w, bias, ones, ones, ones, false, zeros, 1);
  }

  // Makes a call of the op with the images, and what is added to them if there is a second operand.
  void call_frozen(Call& call, int64_t weight, const std::string& activation, bool adds = false) const {
    call.of("torch_pjrt::frozen_convolution",
            {operand(0), adds ? operand(1) : OpCall::Argument{}, given(weight), given(Ints{2, 5, 13, 9}), given(ones),
             given(ones), given(ones), given(1), given(activation)},
            {0});
  }

  bool skipped = false;
  const Ints ones{1, 1}, zeros{0, 0};
  const at::Tensor x = at::randn({2, 6, 13, 9}), bias = at::randn({5});
};
using KernelFrozenWeights = Frozens;

TEST_F(KernelFrozenWeights, AreThoseOfNow) {
  FrozenWeight place;
  for (int i = 0; i < 3; ++i) {
    at::Tensor w = at::randn({5, 6, 3, 3});
    put(place, w);
    const at::Tensor y = expected(w);
    w.zero_();  // in place, after the handler got it
    for (const std::string activation : {"none", "relu", "relu6"}) {
      Call call(aten_call);
      call.images(x).result_images({2, 5, 13, 9});
      call_frozen(call, place.number(), activation);
      ASSERT_EQ(call.run(), "");
      const double least = activation == "none" ? -1e9 : 0, most = activation == "relu6" ? 6 : 1e9;
      EXPECT_TRUE(near(call.got_images(), y.clamp(least, most)));
    }
  }
}

TEST_F(KernelFrozenWeights, AddInPlaceAndElsewhere) {
  FrozenWeight place;
  const at::Tensor w = at::randn({5, 6, 3, 3}), added = at::randn({2, 5, 13, 9});
  put(place, w);
  for (const bool in_place : {false, true}) {
    Call call(aten_call);
    call.images(x).images(added);
    in_place ? call.result_over(1) : call.result_images({2, 5, 13, 9});
    call_frozen(call, place.number(), "none", true);
    ASSERT_EQ(call.run(), "");
    EXPECT_TRUE(near(call.got_images(), expected(w) + added));
  }
}

TEST_F(KernelFrozenWeights, KeepNaN) {
  FrozenWeight place;
  at::Tensor w = at::randn({5, 6, 3, 3});
  w[0] = std::numeric_limits<double>::quiet_NaN();
  put(place, w);
  Call call(aten_call);
  call.images(x).result_images({2, 5, 13, 9});
  call_frozen(call, place.number(), "relu6");
  ASSERT_EQ(call.run(), "");
  EXPECT_TRUE(near(call.got_images(), expected(w).clamp(0, 6)));
}

TEST_F(KernelFrozenWeights, OfWhichNobodyIsLeft) {
  auto place = std::make_unique<FrozenWeight>();
  put(*place, at::randn({5, 6, 3, 3}));
  Call call(aten_call);
  call.images(x).result_images({2, 5, 13, 9});
  call_frozen(call, place->number(), "none");
  const std::string number = std::to_string(place->number());
  place.reset();
  EXPECT_EQ(call.run(), "a program asks for the frozen weight " + number + ", which is gone");
}

TEST(KernelBatchNorm, AndItsGradients) {
  set_team_size(2);
  for (const Ints& sizes : {Ints{3, 5, 7, 9}, Ints{1, 1, 1, 2}, Ints{2, 32, 33, 33}}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const at::Tensor x = at::randn(sizes).to(dtype), w = at::randn({sizes[1]}), b = at::randn({sizes[1]});
      const auto wide = x.to(at::kFloat);
      const auto [y, mean, rstd] = at::native_batch_norm(wide, w, b, {}, {}, true, 0.1, 1e-5);
      Call forward(aten_call);
      forward.images(x).operand(w).operand(b).result_images(sizes, dtype);
      forward.result({sizes[1]}).result({sizes[1]}).result({sizes[1]});
      forward.of("torch_pjrt::batch_norm_in_training", {operand(0), operand(1), operand(2), given(1e-5)}, {0, 1, 2, 3});
      ASSERT_EQ(forward.run(), "") << sizes;
      EXPECT_TRUE(near(forward.got_images(), y)) << sizes << c10::toString(dtype);
      EXPECT_TRUE(near(forward.got(1), mean) && near(forward.got(2), rstd)) << sizes << c10::toString(dtype);

      const at::Tensor dy = at::randn(sizes).to(dtype);
      const auto [dx, dw, db] = at::native_batch_norm_backward(dy.to(at::kFloat), wide, w, {}, {}, mean, rstd, true,
                                                               1e-5, std::array<bool, 3>{true, true, true});
      Call backward(aten_call);
      backward.images(dy).images(x).operand(w).operand(mean).operand(rstd);
      backward.result_images(sizes, dtype).result({sizes[1]}).result({sizes[1]});
      backward.of("aten::native_batch_norm_backward",
                  {operand(0),
                   operand(1),
                   operand(2),
                   {},
                   {},
                   operand(3),
                   operand(4),
                   given(true),
                   given(1e-5),
                   given(std::array<bool, 3>{true, true, true})},
                  {0, 1, 2});
      ASSERT_EQ(backward.run(), "") << sizes;
      EXPECT_TRUE(near(backward.got_images(), dx)) << sizes << c10::toString(dtype);
      EXPECT_TRUE(near(backward.got(1) / 8, dw / 8) && near(backward.got(2) / 8, db / 8)) << sizes;
    }
  }
}

TEST(KernelBatchNorm, OfNothingFails) {
  Call call(aten_call);
  call.images(at::randn({0, 4, 3, 3})).operand(at::randn({4})).operand(at::randn({4}));
  call.result_images({0, 4, 3, 3}).result({4}).result({4}).result({4});
  call.of("torch_pjrt::batch_norm_in_training", {operand(0), operand(1), operand(2), given(1e-5)}, {0, 1, 2, 3});
  EXPECT_NE(call.run().find("input tensor must have at least one element"), std::string::npos);
}

}  // namespace
}  // namespace tpjrt::kernels::test
