// Buffers of every size including zero: host memory copied in and out, and aliased.
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "test_client.h"

namespace tpjrt::pjrt::test {
namespace {

using Semantics = HostBufferSemantics;

class BufferTest : public WithPlugin {};

TEST_F(BufferTest, CopyInAndOut) {
  Floats floats(6);
  const std::vector<int64_t> dims{2, 3};
  const auto buffer = test_client().buffer_from_host(floats.data, PJRT_Buffer_Type_F32, dims, Semantics::kCopy, 0, {});
  std::memset(floats.data, 0, 6 * sizeof(float));
  EXPECT_EQ(buffer->element_type(), PJRT_Buffer_Type_F32);
  EXPECT_EQ(buffer->dims(), dims);
  EXPECT_EQ(buffer->size_in_bytes(), 24u);
  EXPECT_EQ(buffer->device_index(), 0u);
  buffer->await();
  EXPECT_TRUE(buffer->is_ready());
  EXPECT_FALSE(buffer->is_deleted());
  EXPECT_EQ(download(*buffer), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(BufferTest, APartOfIt) {
  const auto buffer = upload(Floats(8));
  float part[3];
  buffer->copy_raw_to_host(part, 4 * sizeof(float), sizeof part);
  EXPECT_EQ(part[0], 5);
  EXPECT_EQ(part[2], 7);
  EXPECT_EQ(thrown([&] { buffer->copy_raw_to_host(part, 24, 12); }),
            "PJRT_Buffer_CopyRawToHost: OUT_OF_RANGE: 12 bytes from offset 24 of a buffer of 32");
}

TEST_F(BufferTest, AViewOfDeviceMemory) {
  const auto owner = upload(Floats(6));
  owner->await();
  const auto view = test_client().view_of_device_memory(owner->device_pointer(), owner->type(), 0);
  EXPECT_EQ(download(*view), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(view->device_pointer(), owner->device_pointer());
  const auto before = test_client().memory(0).current_bytes();
  EXPECT_EQ(test_client().view_of_device_memory(owner->device_pointer(), owner->type(), 0)->size_in_bytes(), 24u);
  EXPECT_EQ(test_client().memory(0).current_bytes(), before) << "a view is others' memory";
  const auto empty = std::make_shared<const BufferType>(PJRT_Buffer_Type_F32, std::vector<int64_t>{0, 3});
  EXPECT_EQ(test_client().view_of_device_memory(nullptr, empty, 0)->dims(), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(thrown([&] { test_client().view_of_device_memory(nullptr, owner->type(), 0); }),
            "PJRT_Client_CreateViewOfDeviceBuffer: INVALID_ARGUMENT: null data for an array that is not empty");
}

TEST_F(BufferTest, StreamsWhereThePluginHasThem) {
  if (test_client().platform_name() != "cpu") GTEST_SKIP() << "the CPU's plugin has none";
  EXPECT_EQ(plugin_stream(test_client(), 0), std::nullopt);
  EXPECT_FALSE(wait_on_stream(*upload(Floats(2)), 0));
}

TEST_F(BufferTest, ZeroCopyKeepsTheAddress) {
  if (!test_client().is_host_memory()) GTEST_SKIP() << "device memory is not the host's";
  const Floats floats(100);
  for (Semantics semantics : {Semantics::kZeroCopyImmutable, Semantics::kZeroCopyMutable}) {
    EXPECT_EQ(upload(floats, semantics)->host_pointer(), floats.data);
  }
  const auto copied = upload(floats, Semantics::kCopy);
  EXPECT_NE(copied->host_pointer(), floats.data);
  EXPECT_EQ(static_cast<const float*>(copied->host_pointer())[99], 100);
  EXPECT_EQ(copied->host_pointer(), copied->host_pointer());
}

TEST_F(BufferTest, UnalignedMemoryIsCopied) {
  const Floats floats(17);
  for (Semantics semantics : {Semantics::kZeroCopyImmutable, Semantics::kZeroCopyMutable}) {
    const std::vector<int64_t> dims{16};
    const auto buffer = test_client().buffer_from_host(floats.data + 1, PJRT_Buffer_Type_F32, dims, semantics, 0, {});
    EXPECT_EQ(download(*buffer)[15], 17);
  }
}

TEST_F(BufferTest, DeviceMemoryHasNoHostPointer) {
  if (test_client().is_host_memory()) GTEST_SKIP() << "device memory is the host's";
  EXPECT_EQ(upload(Floats(4))->host_pointer(), nullptr);
}

TEST_F(BufferTest, ReleaseRunsOnce) {
  const Floats floats(64);
  const std::vector<int64_t> dims = floats.dims();
  for (Semantics semantics : {Semantics::kCopy, Semantics::kZeroCopyImmutable, Semantics::kZeroCopyMutable}) {
    std::atomic<int> released{0};
    auto buffer =
        test_client().buffer_from_host(floats.data, PJRT_Buffer_Type_F32, dims, semantics, 0, [&] { ++released; });
    if (semantics == Semantics::kCopy) {
      EXPECT_EQ(released, 1);
    } else if (buffer->host_pointer() == floats.data) {
      EXPECT_EQ(released, 0) << "aliased memory was released under its buffer";
    }
    buffer->await();
    buffer.reset();
    while (released == 0) {
    }
    EXPECT_EQ(released, 1);
  }
}

TEST_F(BufferTest, ReleaseOfDonatedMemoryWaitsForTheResult) {
  if (!test_client().is_host_memory()) GTEST_SKIP() << "device memory is not the host's";
  const Floats floats(64);
  std::atomic<int> released{0};
  auto buffer = test_client().buffer_from_host(floats.data, PJRT_Buffer_Type_F32, floats.dims(),
                                               Semantics::kZeroCopyMutable, 0, [&] { ++released; });
  auto result = run(*test_client().compile(double_program(64, true)), *buffer);
  result->await();
  buffer.reset();
  EXPECT_EQ(released, 0) << "the result lies in it";
  result.reset();
  EXPECT_EQ(released, 1);
}

std::shared_ptr<Buffer> over(const Floats& floats, std::atomic<int>& released) {
  auto type = std::make_shared<const BufferType>(PJRT_Buffer_Type_F32, floats.dims());
  return test_client().buffer_over_host(floats.data, std::move(type), 0, [&] { ++released; });
}

TEST_F(BufferTest, TheRuntimeIsToldOfHostMemoryWhenItIsNeeded) {
  if (!test_client().is_host_memory()) GTEST_SKIP() << "device memory is not the host's";
  const Floats floats(64);
  std::atomic<int> released{0};
  const uint64_t before = test_client().handed_over();
  const int64_t bytes = test_client().memory(0).current_bytes();
  auto buffer = over(floats, released);
  EXPECT_EQ(test_client().memory(0).current_bytes(), bytes + 256);
  EXPECT_TRUE(buffer->is_ready());
  EXPECT_FALSE(buffer->is_deleted());
  EXPECT_EQ(buffer->host_pointer(), floats.data);
  EXPECT_EQ(download(*buffer)[63], 64);
  EXPECT_FALSE(buffer->is_handed_over());
  EXPECT_EQ(test_client().handed_over(), before);
  buffer.reset();
  EXPECT_EQ(released, 1);
  EXPECT_EQ(test_client().memory(0).current_bytes(), bytes);

  buffer = over(floats, released);
  EXPECT_NE(buffer->handle(), nullptr);
  EXPECT_EQ(buffer->handle(), buffer->handle());
  EXPECT_EQ(test_client().handed_over(), before + 1);
  EXPECT_EQ(buffer->host_pointer(), floats.data);
  EXPECT_EQ(released, 1);
  buffer.reset();
  EXPECT_EQ(released, 2);
}

TEST_F(BufferTest, HostMemoryIsDonatedAsItLies) {
  if (!test_client().is_host_memory()) GTEST_SKIP() << "device memory is not the host's";
  const Floats floats(64);
  std::atomic<int> released{0};
  auto buffer = over(floats, released);
  auto result = run(*test_client().compile(double_program(64, true)), *buffer);
  EXPECT_EQ(result->host_pointer(), floats.data);
  EXPECT_TRUE(buffer->is_deleted());
  buffer->set_counted(false);
  EXPECT_THROW(buffer->host_pointer(), Error) << "a donated buffer's memory is the result's";
  buffer.reset();
  EXPECT_EQ(released, 0);
  result.reset();
  EXPECT_EQ(released, 1);
}

TEST_F(BufferTest, TwoThreadsHandHostMemoryOverOnce) {
  if (!test_client().is_host_memory()) GTEST_SKIP() << "device memory is not the host's";
  const Floats floats(64);
  for (int i = 0; i < 50; ++i) {
    std::atomic<int> released{0};
    auto buffer = over(floats, released);
    std::array<PJRT_Buffer*, 2> handles{};
    {
      std::jthread other([&] { handles[0] = buffer->handle(); });
      handles[1] = buffer->handle();
    }
    EXPECT_EQ(handles[0], handles[1]);
    EXPECT_EQ(released, 0);
    buffer.reset();
    EXPECT_EQ(released, 1);
  }
}

TEST_F(BufferTest, ReleaseRunsWhenTheCallFails) {
  int released = 0;
  const Floats floats(4);
  EXPECT_THROW(test_client().buffer_from_host(floats.data, PJRT_Buffer_Type_F32, floats.dims(), Semantics::kCopy, 1000,
                                              [&] { ++released; }),
               std::out_of_range);
  EXPECT_EQ(released, 1);
  EXPECT_THROW(test_client().buffer_from_host(floats.data, PJRT_Buffer_Type_INVALID, floats.dims(),
                                              Semantics::kZeroCopyMutable, 0, [&] { ++released; }),
               Error);
  EXPECT_EQ(released, 2);
}

TEST_F(BufferTest, WhatAPluginWouldAbortAtIsRefused) {
  const float one = 1;
  const std::vector<int64_t> negative{-1}, some{4};
  const auto refused = [&](const void* data, PJRT_Buffer_Type type, const std::vector<int64_t>& dims) {
    return thrown([&] { test_client().buffer_from_host(data, type, dims, Semantics::kCopy, 0, {}); });
  };
  const std::string start = "PJRT_Client_BufferFromHostBuffer: INVALID_ARGUMENT: ";
  EXPECT_EQ(refused(&one, PJRT_Buffer_Type_TOKEN, {}), start + "element type 23 has no size in host memory");
  EXPECT_EQ(refused(&one, PJRT_Buffer_Type_F32, negative), start + "a dimension of size -1");
  EXPECT_EQ(refused(nullptr, PJRT_Buffer_Type_F32, some), start + "null data for an array that is not empty");
}

TEST_F(BufferTest, NoDimensions) {
  Floats one(1);
  for (Semantics semantics : {Semantics::kCopy, Semantics::kZeroCopyImmutable, Semantics::kZeroCopyMutable}) {
    const auto buffer = test_client().buffer_from_host(one.data, PJRT_Buffer_Type_F32, {}, semantics, 0, {});
    EXPECT_TRUE(buffer->dims().empty());
    EXPECT_EQ(download(*buffer), std::vector<float>{1});
  }
}

TEST_F(BufferTest, NoElements) {
  const std::vector<int64_t> dims{3, 0, 2};
  for (Semantics semantics : {Semantics::kCopy, Semantics::kZeroCopyImmutable, Semantics::kZeroCopyMutable}) {
    int released = 0;
    auto buffer =
        test_client().buffer_from_host(nullptr, PJRT_Buffer_Type_F32, dims, semantics, 0, [&] { ++released; });
    EXPECT_EQ(buffer->size_in_bytes(), 0u);
    buffer->copy_to_host(nullptr, 0);
    buffer->copy_raw_to_host(nullptr, 0, 0);
    buffer->host_pointer();
    buffer.reset();
    EXPECT_EQ(released, 1);
  }
}

TEST_F(BufferTest, EveryElementType) {
  const Floats bytes(64);
  const std::vector<int64_t> dims{3};
  for (PJRT_Buffer_Type type : {PJRT_Buffer_Type_PRED,       PJRT_Buffer_Type_S8,       PJRT_Buffer_Type_S16,
                                PJRT_Buffer_Type_S32,        PJRT_Buffer_Type_S64,      PJRT_Buffer_Type_U8,
                                PJRT_Buffer_Type_U16,        PJRT_Buffer_Type_U32,      PJRT_Buffer_Type_U64,
                                PJRT_Buffer_Type_F16,        PJRT_Buffer_Type_BF16,     PJRT_Buffer_Type_F32,
                                PJRT_Buffer_Type_F64,        PJRT_Buffer_Type_C64,      PJRT_Buffer_Type_C128,
                                PJRT_Buffer_Type_F8E5M2,     PJRT_Buffer_Type_F8E4M3FN, PJRT_Buffer_Type_F8E5M2FNUZ,
                                PJRT_Buffer_Type_F8E4M3FNUZ, PJRT_Buffer_Type_F8E8M0FNU}) {
    const auto buffer = test_client().buffer_from_host(bytes.data, type, dims, Semantics::kCopy, 0, {});
    std::vector<char> copy(buffer->size_in_bytes());
    buffer->copy_to_host(copy.data(), copy.size());
    EXPECT_EQ(std::memcmp(copy.data(), bytes.data, copy.size()), 0) << type;
  }
}

TEST_F(BufferTest, TooSmallADestination) {
  const auto buffer = upload(Floats(4));
  float little[2];
  EXPECT_NE(thrown([&] { buffer->copy_to_host(little, sizeof little); }), "");
}

TEST_F(BufferTest, ToAnotherDevice) {
  if (test_client().devices().size() < 2) GTEST_SKIP() << "one device";
  const auto there = upload(Floats(4))->copy_to_device(1);
  EXPECT_EQ(there->device_index(), 1u);
  EXPECT_EQ(download(*there), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(BufferTest, OutlivesTheNameOfItsClient) {
  auto client = Client::create(test_client().api());
  const Floats floats(4);
  const auto buffer =
      client->buffer_from_host(floats.data, PJRT_Buffer_Type_F32, floats.dims(), Semantics::kCopy, 0, {});
  client.reset();
  EXPECT_EQ(download(*buffer)[3], 4);
}

}  // namespace
}  // namespace tpjrt::pjrt::test
