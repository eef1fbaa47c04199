// torch_pjrt::matrix_product: each dtype, every layout of operands, and sizes from zero to a team's.
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "call.h"
#include "kernels/cpu/team.h"

namespace tpjrt::kernels::test {
namespace {

at::Tensor drawn(c10::IntArrayRef sizes, c10::ScalarType dtype) {
  return dtype == at::kChar ? at::randint(-9, 9, sizes, dtype) : at::randn(sizes).to(dtype);
}

struct Sizes {
  int64_t batch, rows, depth, columns;  // batch 0: none
};

// Makes a product of the first two operands, and adds the third one, if there is one.
void multiply(Call& call, bool a_transposed, bool b_transposed, const std::string& by, bool adds = false) {
  call.of("torch_pjrt::matrix_product",
          {operand(0), operand(1), adds ? operand(2) : OpCall::Argument{}, given(a_transposed), given(b_transposed),
           given(by), given(adds ? 2.0 : 0.0), given(adds ? 0.5 : 1.0)},
          {0}, "out");
}

class KernelProducts : public testing::TestWithParam<Sizes> {
 protected:
  KernelProducts() { set_team_size(2); }
};

TEST_P(KernelProducts, OfEachDtypeAndOrder) {
  const auto [batch, rows, depth, columns] = GetParam();
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kChar}) {
    if (dtype == at::kChar && batch != 0) continue;  // _int_mm supports none
    for (const int transposed : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const auto sizes = [&](int64_t a, int64_t b) { return batch == 0 ? Ints{a, b} : Ints{batch, a, b}; };
      const bool a_transposed = (transposed & 1) != 0, b_transposed = (transposed & 2) != 0,
                 skinny = (transposed & 4) != 0;
      const at::Tensor a = drawn(a_transposed ? sizes(depth, rows) : sizes(rows, depth), dtype),
                       b = drawn(b_transposed ? sizes(columns, depth) : sizes(depth, columns), dtype);
      Call call(aten_call);
      call.operand(a).operand(b).result(sizes(rows, columns), dtype == at::kChar ? at::kInt : dtype);
      multiply(call, a_transposed, b_transposed, skinny ? "skinny" : "onednn");
      ASSERT_EQ(call.run(), "");
      const auto straight = [](const at::Tensor& x, bool transposed) {
        return (transposed ? x.transpose(-1, -2) : x).to(at::kDouble);
      };
      const at::Tensor expected = at::matmul(straight(a, a_transposed), straight(b, b_transposed));
      EXPECT_TRUE(near(call.got() / 8, expected / 8)) << c10::toString(dtype) << " " << transposed;
    }
  }
}

TEST_P(KernelProducts, WithWhatIsAdded) {
  const auto [batch, rows, depth, columns] = GetParam();
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto sizes = [&](int64_t a, int64_t b) { return batch == 0 ? Ints{a, b} : Ints{batch, a, b}; };
    const at::Tensor a = drawn(sizes(rows, depth), dtype), b = drawn(sizes(depth, columns), dtype),
                     added = drawn({columns}, dtype);
    Call call(aten_call);
    call.operand(a).operand(b).operand(added).result(sizes(rows, columns), dtype);
    multiply(call, false, false, "skinny", true);
    ASSERT_EQ(call.run(), "");
    const at::Tensor expected = added.to(at::kDouble) * 2 + at::matmul(a.to(at::kDouble), b.to(at::kDouble)) * 0.5;
    EXPECT_TRUE(near(call.got() / 8, expected / 8)) << c10::toString(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, KernelProducts,
                         testing::Values(Sizes{0, 1, 1, 1}, Sizes{0, 7, 13, 5}, Sizes{0, 128, 64, 257},
                                         Sizes{3, 5, 17, 9}, Sizes{0, 0, 3, 2}, Sizes{2, 3, 4, 0}, Sizes{0, 3, 0, 2},
                                         // Rows of bfloat16 beyond whole vectors and column blocks.
                                         Sizes{0, 1, 300, 2100}, Sizes{3, 1, 77, 130}, Sizes{0, 1, 129, 16},
                                         Sizes{0, 19, 130, 70}),
                         [](const auto& info) {
                           const auto& s = info.param;
                           return std::to_string(s.batch) + "_" + std::to_string(s.rows) + "_" +
                                  std::to_string(s.depth) + "_" + std::to_string(s.columns);
                         });

TEST(KernelProductsFail, WithWhatTorchSays) {
  Call call(aten_call);
  call.operand(at::randn({2, 3}).to(at::kDouble)).operand(at::randn({4, 5}).to(at::kDouble));
  call.result({2, 5}, at::kDouble);
  multiply(call, false, false, "skinny");
  EXPECT_NE(call.run().find("mat1 and mat2 shapes cannot be multiplied"), std::string::npos);
}

}  // namespace
}  // namespace tpjrt::kernels::test
