// Kernels that allocate their results write them into existing memory.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include "kernels/cpu/output_forwarding.h"

namespace tpjrt::kernels {
namespace {

TEST(OutputForwarding, TheFirstOfItsSizeIsThere) {
  const at::Tensor memory = at::zeros({2, 3});
  const OutputForwarding place(memory);
  EXPECT_NE(at::empty({2, 4}).const_data_ptr(), memory.const_data_ptr());
  at::Tensor grown = at::empty({0});
  grown.resize_({2, 3});
  EXPECT_EQ(grown.const_data_ptr(), memory.const_data_ptr());
  EXPECT_NE(at::empty({2, 3}).const_data_ptr(), memory.const_data_ptr());
}

TEST(OutputForwarding, ResultsElsewhereAreCopied) {
  const at::Tensor memory = at::zeros({2, 3});
  const at::Tensor result = at::zeros({2, 3}).fill_(7);
  const OutputForwarding place(memory);
  const at::Tensor scratch = at::empty({3, 2});  // occupies the memory
  EXPECT_EQ(scratch.const_data_ptr(), memory.const_data_ptr());
  place.give(result);
  EXPECT_TRUE(memory.equal(result));
}

TEST(OutputForwarding, ResultsInAnotherLayoutAreTransposed) {
  const at::Tensor memory = at::zeros({2, 3}), transposed = memory.as_strided({2, 3}, {1, 2});
  const OutputForwarding place(transposed);
  const at::Tensor result = at::empty({2, 3});
  for (int64_t i = 0; i < 6; ++i) result.view(-1)[i].fill_(i);
  const at::Tensor wanted = result.clone();
  place.give(result);
  EXPECT_TRUE(transposed.equal(wanted));
}

TEST(OutputForwarding, ScratchMemoryMayBeThere) {
  const at::Tensor memory = at::zeros({2, 3});
  const OutputForwarding place(memory);
  c10::Allocator* allocator = c10::GetCPUAllocator();
  void *scratch = allocator->raw_allocate(memory.nbytes()), *other = allocator->raw_allocate(memory.nbytes());
  EXPECT_EQ(scratch, memory.const_data_ptr());
  EXPECT_NE(other, scratch);
  allocator->raw_deallocate(other);
  allocator->raw_deallocate(scratch);
  EXPECT_TRUE(memory.equal(at::zeros({2, 3})));
}

TEST(OutputForwarding, AfterwardsNothingIsThere) {
  const at::Tensor memory = at::zeros({2, 3});
  {
    const OutputForwarding place(memory);
  }
  EXPECT_NE(at::empty({2, 3}).const_data_ptr(), memory.const_data_ptr());
}

// oneDNN takes the memory of its blocked results so, as for images of one dimension.
TEST(OutputForwarding, RawMemoryMayBeThereAndIsNotFreed) {
  const at::Tensor memory = at::zeros({2, 3});
  const OutputForwarding place(memory);
  c10::Allocator* allocator = c10::GetCPUAllocator();
  void* first = allocator->raw_allocate(memory.nbytes());
  void* second = allocator->raw_allocate(memory.nbytes());
  EXPECT_EQ(first, memory.const_data_ptr());
  EXPECT_NE(second, first);
  allocator->raw_deallocate(first);
  allocator->raw_deallocate(second);
  EXPECT_TRUE(memory.equal(at::zeros({2, 3})));
}

}  // namespace
}  // namespace tpjrt::kernels
