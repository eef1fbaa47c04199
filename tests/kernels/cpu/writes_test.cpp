// torch_pjrt::write_strided changes the base's memory at these elements, and nothing else.
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>

#include "call.h"
#include "kernels/cpu/team.h"

namespace tpjrt::kernels::test {
namespace {

struct Place {
  Ints sizes, strides;
  int64_t offset;
};

void write(Call& call, const Ints& strides) {
  call.of("torch_pjrt::write_strided", {operand(0), operand(1), operand(2), given(strides)}, {0}, "out");
}

class KernelWrites : public testing::TestWithParam<Place> {
 protected:
  KernelWrites() { set_team_size(2); }
};

TEST_P(KernelWrites, OfEachDtype) {
  const auto& [sizes, strides, offset] = GetParam();
  for (const auto dtype : {at::kBool, at::kChar, at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kComplexDouble}) {
    const at::Tensor base = at::randn({512, 300}).to(dtype), update = at::randn(sizes).to(dtype);
    Call call(aten_call);
    call.operand(base).operand(update).operand(at::scalar_tensor(offset, at::kLong)).result_over(0);
    write(call, strides);
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
  Call call(aten_call);
  call.operand(at::full({8}, 1.0)).operand(at::full({4}, 2.0)).operand(at::scalar_tensor(5, at::kLong)).result_over(0);
  write(call, Ints{1});
  EXPECT_NE(call.run().find("out of bounds"), std::string::npos);
  EXPECT_TRUE(call.got().equal(at::full({8}, 1.0)));
}

}  // namespace
}  // namespace tpjrt::kernels::test
