// Handlers of XLA's FFI, called from programs and in many threads, with errors and exceptions.
#include "pjrt/ffi.h"

#include <unistd.h>
#include <xla/ffi/api/ffi.h>

#include <atomic>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "test_client.h"

namespace tpjrt::pjrt::test {
namespace {

namespace ffi = xla::ffi;
using F32 = ffi::Buffer<ffi::F32>;
using ResultF32 = ffi::ResultBuffer<ffi::F32>;

std::atomic<int> calls = 0;

ffi::Error scaled(F32 x, double factor, ResultF32 y) {
  ++calls;
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = static_cast<float>(factor) * x.typed_data()[i];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER(kScaled, scaled, ffi::Ffi::Bind().Arg<F32>().Attr<double>("factor").Ret<F32>());

// Returns an error for negative numbers, and throws for numbers above 9.
ffi::Error refusing(F32 x, ResultF32 /*y*/) {
  if (x.typed_data()[0] > 9) throw std::runtime_error("too large");
  return ffi::Error::InvalidArgument("too small");
}
XLA_FFI_DEFINE_HANDLER(kRefusing, refusing, ffi::Ffi::Bind().Arg<F32>().Ret<F32>());

XLA_FFI_Error* of_tomorrow(XLA_FFI_CallFrame* frame) {
  auto* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start)->metadata;
  metadata->api_version.major_version = 0;
  metadata->api_version.minor_version = 99;
  return nullptr;
}

std::string calling(const std::string& target, const std::string& attributes = "") {
  return "module { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n %0 = stablehlo.custom_call @\"" +
         target + "\"(%a) {api_version = 4 : i32, backend_config = {" + attributes +
         "}} : (tensor<4xf32>) -> tensor<4xf32>\n return %0 : tensor<4xf32>\n} }";
}

std::string message_of(const Executable& executable, const Buffer& argument) {
  try {
    run(executable, argument)->await();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class FfiTest : public WithPlugin {};

TEST_F(FfiTest, TellsTheVersionThatAHandlerIsFor) {
  EXPECT_EQ(version_of(kScaled).major, XLA_FFI_API_MAJOR);
  EXPECT_EQ(version_of(kScaled).minor, XLA_FFI_API_MINOR);
}

TEST_F(FfiTest, IsCalledWithOperandsAndAttributes) {
  register_handler(test_client(), "test.scaled", kScaled);
  register_handler(test_client(), "test.scaled", kScaled);  // no error
  const auto executable = test_client().compile(calling("test.scaled", "factor = 3.0 : f64"));
  EXPECT_EQ(download(*run(*executable, *upload(Floats(4)))), (std::vector<float>{3, 6, 9, 12}));
}

TEST_F(FfiTest, AnotherHandlerOfTheSameNameIsRefused) {
  register_handler(test_client(), "test.scaled", kScaled);
  EXPECT_THROW(register_handler(test_client(), "test.scaled", kRefusing), Error);
}

TEST_F(FfiTest, IsCalledByManyThreads) {
  constexpr int kThreads = 4, kRuns = 50;
  register_handler(test_client(), "test.scaled", kScaled);
  const auto executable = test_client().compile(calling("test.scaled", "factor = 2.0 : f64"));
  calls = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRuns; ++i) EXPECT_EQ(download(*run(*executable, *upload(Floats(4))))[3], 8);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls, kThreads * kRuns);
}

TEST_F(FfiTest, ErrorsAndExceptionsTellWhereTheyAreFrom) {
  register_handler(test_client(), "test.refusing", kRefusing);
  add_place("test.refusing", "the test's composite");
  const auto executable = test_client().compile(calling("test.refusing"));
  EXPECT_NE(message_of(*executable, *upload(Floats(4))).find("the test's composite: too small"), std::string::npos);
  Floats large(4);
  large.data[0] = 10;
  EXPECT_NE(message_of(*executable, *upload(large)).find("the test's composite: too large"), std::string::npos);
}

TEST_F(FfiTest, ASecondClientHasTheHandlersOfItsPlugin) {
  register_handler(test_client(), "test.scaled", kScaled);
  for (int i = 0; i < 2; ++i) {  // the second may have the first one's address
    const std::shared_ptr<Client> other = Client::create(Api::load(plugin_path()));
    register_handler(*other, "test.scaled", kScaled);
    EXPECT_EQ(other->compile(calling("test.scaled", "factor = 1.0 : f64"))->num_results(), 1u);
  }
}

// One plugin loaded from two files is two plugins with separate globals.
TEST_F(FfiTest, TwoPluginsCallOneHandler) {
  const std::filesystem::path copy = std::filesystem::temp_directory_path() / ("plugin" + std::to_string(getpid()));
  std::filesystem::copy_file(plugin_path(), copy);
  const Api& api = Api::load(copy);
  std::filesystem::remove(copy);
  const std::shared_ptr<Client> other = Client::create(api);
  register_handler(test_client(), "test.of_two", kScaled);
  register_handler(*other, "test.of_two", kScaled);
  EXPECT_THROW(register_handler(*other, "test.of_two", kRefusing), Error);
  add_place("test.of_two", "of two");
  const auto work = [](Client& client, float factor) {
    const auto executable = client.compile(calling("test.of_two", "factor = " + std::to_string(factor) + " : f64"));
    const Floats floats(4);
    for (int i = 0; i < 20; ++i) {
      const auto buffer =
          client.buffer_from_host(floats.data, PJRT_Buffer_Type_F32, floats.dims(), HostBufferSemantics::kCopy, 0, {});
      EXPECT_EQ(download(*run(*executable, *buffer))[3], 4 * factor);
    }
    const auto refused = client.compile(calling("test.of_two"));
    EXPECT_NE(message_of(*refused, *client.buffer_from_host(floats.data, PJRT_Buffer_Type_F32, floats.dims(),
                                                            HostBufferSemantics::kCopy, 0, {}))
                  .find("of two: "),
              std::string::npos);
  };
  std::thread second([&] { work(*other, 3); });
  work(test_client(), 2);
  second.join();
}

TEST_F(FfiTest, ARefusedHandlerLeavesItsNameFree) {
  EXPECT_THROW(register_handler(test_client(), "test.second_try", of_tomorrow), Error);
  register_handler(test_client(), "test.second_try", kScaled);
  const auto executable = test_client().compile(calling("test.second_try", "factor = 3.0 : f64"));
  EXPECT_EQ(download(*run(*executable, *upload(Floats(4))))[3], 12);
}

}  // namespace
}  // namespace tpjrt::pjrt::test
