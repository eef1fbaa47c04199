// Tensors on the host, which need no plugin.
#include <gtest/gtest.h>
#include <torch_pjrt/program.h>

namespace torch_pjrt {
namespace {

TEST(Tensor, KeepsValuesAndShape) {
  const Tensor tensor = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(tensor.dtype(), DType::kFloat32);
  EXPECT_EQ(tensor.shape(), (Shape{2, 2}));
  EXPECT_EQ(tensor.nbytes(), 16u);
  EXPECT_EQ(tensor.values<float>(), (std::vector<float>{1, 2, 3, 4}));
}

TEST(Tensor, SaysWhatDoesNotFit) {
  EXPECT_THROW((void)Tensor::of<float>({3}, {1, 2}), Error);
  EXPECT_THROW((void)Tensor::of<float>({1}, {1}).values<double>(), Error);
  EXPECT_THROW((void)Tensor().shape(), Error);
  EXPECT_THROW((void)Tensor::view(DType::kFloat32, {-1}, nullptr), Error);
  char byte = 0;
  EXPECT_THROW(Tensor::of<float>({1}, {1}).copy_to(&byte, 1), Error);
}

}  // namespace
}  // namespace torch_pjrt
