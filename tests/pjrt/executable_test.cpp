// Programs: compiling, running, donating and storing, in one thread and in many.
#include <atomic>
#include <thread>

#include "test_client.h"

// Otherwise the address sanitizer would end the process at a failed allocation.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace tpjrt::pjrt::test {
namespace {

using Semantics = HostBufferSemantics;

class ExecutableTest : public WithPlugin {};

TEST_F(ExecutableTest, Runs) {
  const auto executable = test_client().compile(double_program(4));
  EXPECT_EQ(executable->num_results(), 1u);
  EXPECT_EQ(executable->result_types()[0]->dims, std::vector<int64_t>{4});
  EXPECT_EQ(executable->result_types()[0]->element_type, PJRT_Buffer_Type_F32);
  EXPECT_FALSE(executable->name().empty());
  const auto argument = upload(Floats(4));
  const auto result = run(*executable, *argument);
  EXPECT_EQ(result->type(), executable->result_types()[0]) << "the type is shared, not made anew";
  EXPECT_EQ(download(*result), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_FALSE(argument->is_deleted());
}

TEST_F(ExecutableTest, LargeProgramsRunBehindTheCaller) {
  const int64_t size = 1 << 20;
  const auto executable = test_client().compile(double_program(size));
  auto value = upload(Floats(static_cast<size_t>(size)));
  for (int i = 0; i < 4; ++i) value = run(*executable, *value);  // each waits for the last one on the device only
  value->await();
  EXPECT_EQ(download(*value)[2], 48);
}

TEST_F(ExecutableTest, ManyArgumentsAndResults) {
  constexpr int kCount = 300;  // exceeds the number kept on the stack
  std::string parameters, types, values;
  for (int i = 0; i < kCount; ++i) {
    const std::string comma = i == 0 ? "" : ", ";
    parameters += comma + "%a" + std::to_string(i) + ": tensor<f32>";
    types += comma + "tensor<f32>";
    values = "%a" + std::to_string(i) + (i == 0 ? "" : ", ") + values;
  }
  const auto executable = test_client().compile("func.func public @main(" + parameters + ") -> (" + types +
                                                ") { return " + values + " : " + types + " }");
  std::vector<std::shared_ptr<Buffer>> arguments, results;
  std::vector<const Buffer*> given;
  for (int i = 0; i < kCount; ++i) {
    const float value = static_cast<float>(i);
    arguments.push_back(test_client().buffer_from_host(&value, PJRT_Buffer_Type_F32, {}, Semantics::kCopy, 0, {}));
    given.push_back(arguments.back().get());
  }
  executable->execute(given, {}, results);
  ASSERT_EQ(results.size(), static_cast<size_t>(kCount));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(download(*results[static_cast<size_t>(i)])[0], kCount - 1 - i);
}

TEST_F(ExecutableTest, NothingInNothingOut) {
  std::vector<std::shared_ptr<Buffer>> results(3);
  test_client().compile("func.func public @main() { return }")->execute({}, {}, results);
  EXPECT_TRUE(results.empty());
}

TEST_F(ExecutableTest, EmptyAndScalarResults) {
  const auto executable = test_client().compile(
      "func.func public @main() -> (tensor<0x3xf32>, tensor<i32>) {\n"
      " %0 = stablehlo.constant dense<> : tensor<0x3xf32>\n"
      " %1 = stablehlo.constant dense<7> : tensor<i32>\n"
      " return %0, %1 : tensor<0x3xf32>, tensor<i32>\n}");
  std::vector<std::shared_ptr<Buffer>> results;
  executable->execute({}, {}, results);
  EXPECT_EQ(results[0]->dims(), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(results[0]->size_in_bytes(), 0u);
  results[0]->copy_to_host(nullptr, 0);
  int32_t seven = 0;
  results[1]->copy_to_host(&seven, sizeof seven);
  EXPECT_EQ(seven, 7);
  EXPECT_TRUE(results[1]->dims().empty());
}

TEST_F(ExecutableTest, DonatedMemoryIsUpdatedInPlace) {
  if (!test_client().is_host_memory()) GTEST_SKIP() << "device memory is not the host's";
  const auto executable = test_client().compile(double_program(64, true));
  const Floats floats(64);
  const auto argument = upload(floats, Semantics::kZeroCopyMutable);
  const auto result = run(*executable, *argument);
  EXPECT_EQ(result->host_pointer(), floats.data);
  EXPECT_EQ(floats.data[63], 128);
  EXPECT_TRUE(argument->is_deleted());
  const auto again = run(*executable, *result);  // a result can be donated like an upload
  EXPECT_EQ(again->host_pointer(), floats.data);
  EXPECT_EQ(floats.data[63], 256);
}

TEST_F(ExecutableTest, ImmutableMemoryIsNeverWritten) {
  const auto executable = test_client().compile(double_program(64, true));
  const Floats floats(64);
  const auto result = run(*executable, *upload(floats, Semantics::kZeroCopyImmutable));
  EXPECT_EQ(download(*result)[63], 128);
  EXPECT_EQ(floats.data[63], 64);
}

TEST_F(ExecutableTest, NonDonatableArgumentsSurvive) {
  const auto executable = test_client().compile(double_program(64, true));
  for (Semantics semantics : {Semantics::kCopy, Semantics::kZeroCopyImmutable, Semantics::kZeroCopyMutable}) {
    const Floats floats(64);
    const auto argument = upload(floats, semantics);
    const auto result = run(*executable, *argument, {0});
    EXPECT_EQ(download(*result)[63], 128);
    EXPECT_FALSE(argument->is_deleted());
    EXPECT_EQ(download(*argument)[63], 64);
    EXPECT_EQ(floats.data[63], 64);
  }
}

TEST_F(ExecutableTest, DonationWaitsForReadersInFlight) {
  const int64_t size = 1 << 20;
  const auto reader = test_client().compile(double_program(size));
  const auto writer = test_client().compile(double_program(size, true));
  const Floats floats(static_cast<size_t>(size));
  const auto argument = upload(floats, Semantics::kZeroCopyMutable);
  const auto read = run(*reader, *argument);
  const auto written = run(*writer, *argument);
  const auto read_again = run(*reader, *written);
  EXPECT_EQ(download(*read)[999], 2000);
  EXPECT_EQ(download(*read_again)[999], 4000);
}

TEST_F(ExecutableTest, DonatedBuffersAreGone) {
  const auto executable = test_client().compile(double_program(4, true));
  const auto argument = upload(Floats(4));
  run(*executable, *argument)->await();
  EXPECT_THROW(argument->await(), Error);
  EXPECT_THROW(download(*argument), Error);
  EXPECT_THROW(run(*executable, *argument), Error);
  EXPECT_TRUE(argument->is_deleted());
}

TEST_F(ExecutableTest, CompileErrorsCarryTheCompilersMessage) {
  try {
    test_client().compile("func.func public @main() { %0 = stablehlo.bogus : tensor<f32>\n return }");
    FAIL() << "it compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.function, "PJRT_Client_Compile");
    EXPECT_NE(error.code, ErrorCode::kOk);
    EXPECT_NE(std::string(error.what()).find("stablehlo.bogus"), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find("PJRT_Client_Compile: "), 0u) << error.what();
  }
}

TEST_F(ExecutableTest, ArgumentsThatDoNotFit) {
  const auto executable = test_client().compile(double_program(4));
  std::vector<std::shared_ptr<Buffer>> results(2);
  EXPECT_THROW(executable->execute({}, {}, results), Error);
  EXPECT_EQ(results.size(), 2u);
  EXPECT_THROW(run(*executable, *upload(Floats(5))), Error);
}

TEST_F(ExecutableTest, OutOfMemoryIsAnError) {
  const std::string huge = "tensor<35184372088832xf32>";
  const auto run_huge = [&] {
    const auto executable =
        test_client().compile("func.func public @main(%a: tensor<f32>) -> " + huge +
                              " {\n %0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> " + huge +
                              "\n return %0 : " + huge + "\n}");
    const float one = 1;
    const auto argument = test_client().buffer_from_host(&one, PJRT_Buffer_Type_F32, {}, Semantics::kCopy, 0, {});
    run(*executable, *argument)->await();
  };
  EXPECT_NE(thrown(run_huge).find("RESOURCE_EXHAUSTED"), std::string::npos);
}

TEST_F(ExecutableTest, OnAnotherDevice) {
  if (test_client().devices().size() < 2) GTEST_SKIP() << "one device";
  const auto executable = test_client().compile(double_program(4), {.device_ordinal = 1});
  const auto result = run(*executable, *upload(Floats(4), Semantics::kCopy, 1));
  EXPECT_EQ(result->device_index(), 1u);
  EXPECT_EQ(download(*result)[3], 8);
}

TEST_F(ExecutableTest, UnknownOverridesAreRefused) {
  EXPECT_NE(thrown([] {
              test_client().compile(double_program(4), {.device_ordinal = 0, .overrides = {{"xla_nonsense", true}}});
            }).find("xla_nonsense"),
            std::string::npos);
}

TEST_F(ExecutableTest, HintsThatThePluginDoesNotKnowAreLeftOut) {
  CompileOptions options;
  options.overrides = {{"xla_nonsense", true}, {"xla_more_nonsense", int64_t{3}}, {"xla_cpu_enable_fast_math", false}};
  options.hints = {"xla_nonsense", "xla_more_nonsense", "xla_cpu_enable_fast_math"};
  for (int round = 0; round < 2; ++round) {
    const auto executable = test_client().compile(double_program(4), options);
    EXPECT_EQ(download(*run(*executable, *upload(Floats(4))))[3], 8);
  }
  options.hints.erase("xla_nonsense");
  EXPECT_NE(thrown([&] { test_client().compile(double_program(4), options); }).find("xla_nonsense"), std::string::npos);
}

TEST_F(ExecutableTest, ManyThreadsLearnOfTheSameHint) {
  CompileOptions options;
  options.overrides = {{"xla_nonsense_of_many", true}};
  options.hints = {"xla_nonsense_of_many"};
  std::atomic<int> compiled = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      test_client().compile(double_program(4), options);
      ++compiled;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiled, 8);
}

TEST_F(ExecutableTest, SerializeAndLoad) {
  const auto executable = test_client().compile(double_program(4, true));
  std::string bytes;
  try {
    bytes = executable->serialize();
  } catch (const Error& error) {
    if (error.code == ErrorCode::kUnimplemented) GTEST_SKIP() << error.what();
    throw;
  }
  for (int device = 0; device < static_cast<int>(test_client().devices().size()); ++device) {
    const auto loaded = test_client().deserialize(bytes, {.device_ordinal = device});
    ASSERT_EQ(loaded->num_results(), 1u);
    EXPECT_EQ(loaded->result_types()[0]->dims, std::vector<int64_t>{4});
    const auto argument = upload(Floats(4), Semantics::kCopy, static_cast<size_t>(device));
    const auto result = run(*loaded, *argument);
    EXPECT_EQ(download(*result), (std::vector<float>{2, 4, 6, 8}));
    EXPECT_TRUE(argument->is_deleted()) << "aliasing was lost";
  }
  EXPECT_THROW(test_client().deserialize(bytes.substr(0, bytes.size() / 2)), Error);
  EXPECT_THROW(test_client().deserialize("garbage"), Error);
}

TEST_F(ExecutableTest, WaitsAgainAndAgain) {
  // Too large to run in this thread, but finished before the waiting thread would sleep.
  const int64_t size = 1 << 14;
  const auto executable = test_client().compile(double_program(size));
  auto value = upload(Floats(static_cast<size_t>(size)));
  std::vector<std::shared_ptr<Buffer>> results;
  for (int i = 0; i < 20; ++i) {
    executable->execute_and_wait(std::vector<const Buffer*>{value.get()}, {}, results);
    value = results[0];
    std::this_thread::sleep_for(std::chrono::microseconds(50 * i));  // before and after the waiting thread falls asleep
  }
  EXPECT_EQ(download(*value)[0], 1 << 20);
}

TEST_F(ExecutableTest, ManyThreads) {
  const auto executable = test_client().compile(double_program(4096, true));
  std::vector<std::thread> threads;
  std::vector<float> sums(8);
  for (size_t t = 0; t < sums.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 50; ++round) {
        auto value = upload(Floats(4096));
        for (int i = 0; i < 3; ++i) value = run(*executable, *value);
        sums[t] += download(*value)[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < sums.size(); ++t) EXPECT_EQ(sums[t], 50 * 8 * static_cast<float>(t + 1));
}

}  // namespace
}  // namespace tpjrt::pjrt::test
