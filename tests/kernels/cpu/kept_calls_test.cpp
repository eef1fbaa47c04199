// Calls of PyTorch's kernels: the memory of results, errors, and which errors are kept.
#include "kernels/cpu/kept_call.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_inv.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <memory>
#include <stdexcept>

#include "call.h"

namespace tpjrt::kernels::test {
namespace {

using Tensors = std::vector<at::Tensor>;

graph::TypePtr type(c10::ScalarType dtype, c10::IntArrayRef sizes) { return type_like(at::zeros(sizes, dtype)); }

// Makes a call with one argument and one result.
Call calling(const std::string& text, const at::Tensor& x, c10::IntArrayRef sizes, c10::ScalarType dtype,
             decltype(KeptCall::run) run) {
  keep_call(text, {{type(x.scalar_type(), x.sizes())}, {type(dtype, sizes)}, std::move(run)});
  Call call(aten_call, {{kAtenText, text}});
  call.operand(x).result(sizes, dtype).result({}, at::kLong);
  return call;
}

int64_t number_of(const Call& call) { return call.got(1).item().toLong(); }

std::string raised(int64_t number) {
  try {
    std::rethrow_exception(thrown(number));
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

TEST(KernelAtenCalls, WriteAtTheirPlacesOrAreCopied) {
  const at::Tensor x = at::randn({5, 5}).to(at::kDouble);
  Call placed = calling("placed", x, {5, 5}, at::kDouble, [](const Tensors& given, const Tensors& places) {
    at::Tensor place = places[0];
    return Tensors{at::mm_out(place, given[0], given[0])};
  });
  ASSERT_EQ(placed.run(), "");
  EXPECT_TRUE(near(placed.got(), x.mm(x)));
  Call elsewhere = calling("elsewhere", x, {5, 5}, at::kDouble, [](const Tensors& given, const Tensors&) {
    return Tensors{given[0].t()};  // a view of memory that is freed
  });
  ASSERT_EQ(elsewhere.run(), "");
  EXPECT_TRUE(near(elsewhere.got(), x.t()));
  EXPECT_EQ(number_of(placed) + number_of(elsewhere), 0);
}

TEST(KernelAtenCalls, OfNothing) {
  Call call = calling("of nothing", at::randn({0, 3}), {3, 0}, at::kFloat,
                      [](const Tensors& given, const Tensors&) { return Tensors{given[0].t()}; });
  EXPECT_EQ(call.run(), "");
}

TEST(KernelAtenCalls, LeaveNoConjugateBit) {
  const at::Tensor x = at::randn({3, 2}, at::kComplexDouble);
  Call call = calling("conj", x, {3, 2}, at::kComplexDouble, [](const Tensors& given, const Tensors& places) {
    places[0].copy_(given[0]);
    places[0]._set_conj(true);
    return Tensors{places[0]};
  });
  ASSERT_EQ(call.run(), "");
  EXPECT_TRUE(at::allclose(call.got().resolve_conj(), x.conj().resolve_conj()));
  EXPECT_FALSE(call.got().is_conj());
}

TEST(KernelAtenCalls, ThatThrowGiveNaNAndANumber) {
  Call singular = calling("singular", at::zeros({3, 3}), {3, 3}, at::kFloat,
                          [](const Tensors& given, const Tensors&) { return Tensors{at::linalg_inv(given[0])}; });
  ASSERT_EQ(singular.run(), "");
  EXPECT_NE(raised(number_of(singular)).find("the input matrix is singular"), std::string::npos);
  EXPECT_TRUE(singular.got().isnan().all().item().toBool());
  Call whole = calling("whole numbers", at::zeros({3}), {3}, at::kLong,
                       [](const Tensors&, const Tensors&) -> Tensors { throw std::runtime_error("no more"); });
  ASSERT_EQ(whole.run(), "");
  EXPECT_EQ(raised(number_of(whole)), "no more");
  EXPECT_TRUE(whole.got().eq(0).all().item().toBool());
  EXPECT_EQ(raised(number_of(singular) + 1000), "a kernel of PyTorch's raised, and much was raised after it");
}

TEST(KernelAtenCalls, OfOtherSizesThanMetasAreErrors) {
  Call call = calling("other sizes", at::zeros({3}), {4}, at::kFloat,
                      [](const Tensors& given, const Tensors&) { return Tensors{given[0]}; });
  ASSERT_EQ(call.run(), "");
  EXPECT_EQ(raised(number_of(call)), "the kernel's result 0 has sizes [3], its Meta kernel's [4]");
}

TEST(KernelAtenCalls, OfRulesFailWithWhatTorchSays) {
  Call call(aten_call);
  call.operand(at::zeros({2, 3})).operand(at::zeros({2, 3})).result({2, 3});
  call.of("aten::mm", {operand(0), operand(1)}, {0});
  EXPECT_NE(call.run().find("cannot be multiplied"), std::string::npos);
}

// The second result is allocated first, in the memory of the first.
TEST(KernelAtenCalls, OfRulesGiveEachResultItsMemory) {
  const at::Tensor x = at::randn({4, 1}), w = at::randn({1});
  Call call(aten_call);
  call.operand(x).operand(w).result({4, 1}).result({4, 1}).result({4, 1});
  call.of("aten::native_layer_norm", {operand(0), given(Ints{1}), operand(1), {}, given(1e-5)}, {0, 1, 2});
  ASSERT_EQ(call.run(), "");
  const auto [y, mean, rstd] = at::native_layer_norm(x, Ints{1}, w, {}, 1e-5);
  EXPECT_TRUE(near(call.got(0), y) && near(call.got(1), mean) && near(call.got(2), rstd));
}

TEST(KernelAtenCalls, ThatNobodyKeptFail) {
  Call call(aten_call, {{kAtenText, std::string("kept by nobody")}});
  call.operand(at::zeros({3})).result({3}).result({}, at::kLong);
  EXPECT_EQ(call.run(), "torch_pjrt knows no call 'kept by nobody'");
  keep_call("of two", {{type(at::kFloat, {3}), type(at::kFloat, {3})}, {type(at::kFloat, {3})}, nullptr});
  Call other(aten_call, {{kAtenText, std::string("of two")}});
  other.operand(at::zeros({3})).result({3}).result({}, at::kLong);
  EXPECT_EQ(other.run(), "torch_pjrt knows no call 'of two'");
}

}  // namespace
}  // namespace tpjrt::kernels::test
