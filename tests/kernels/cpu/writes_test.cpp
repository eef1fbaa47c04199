// Writes through strides by the handler change the base's memory at these elements, and nothing else.
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>

#include "call.h"
#include "kernels/cpu/handlers.h"
#include "kernels/cpu/team.h"

namespace tpjrt::kernels::test {
namespace {

struct Place {
  Ints sizes, strides;
  int64_t offset;
};

class KernelWrites : public testing::TestWithParam<Place> {
 protected:
  KernelWrites() { set_team_size(2); }
};

TEST_P(KernelWrites, OfEachDtype) {
  const auto& [sizes, strides, offset] = GetParam();
  for (const auto dtype : {at::kBool, at::kChar, at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kComplexDouble}) {
    const at::Tensor base = at::randn({512, 300}).to(dtype), update = at::randn(sizes).to(dtype);
    Call call(write, {{"strides", strides}});
    call.operand(base).operand(update).operand(at::scalar_tensor(offset, at::kLong)).result_over(0);
    ASSERT_EQ(call.run(), "");
    at::Tensor expected = base.clone();
    expected.as_strided(sizes, strides, offset).copy_(update);
    EXPECT_TRUE(call.got().equal(expected)) << c10::toString(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Writes, KernelWrites,
                         testing::Values(Place{{1, 300}, {300, 1}, 511 * 300}, Place{{512}, {300}, 299},
                                         Place{{256, 300}, {600, 1}, 300}, Place{{300, 512}, {1, 300}, 0},
                                         Place{{}, {}, 153599}, Place{{0, 7}, {7, 1}, 0}));

TEST(KernelWrites, BeyondTheMemoryFails) {
  Call call(write, {{"strides", Ints{1}}});
  call.operand(at::full({8}, 1.0)).operand(at::full({4}, 2.0)).operand(at::scalar_tensor(5, at::kLong)).result_over(0);
  EXPECT_NE(call.run().find("out of bounds"), std::string::npos);
  EXPECT_TRUE(call.got().equal(at::full({8}, 1.0)));
}

}  // namespace
}  // namespace tpjrt::kernels::test
