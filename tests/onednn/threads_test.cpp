// Handlers of oneDNN's library, called by programs in files, from several threads at once.
#include <gtest/gtest.h>
#include <torch_pjrt/program.h>

#include <atomic>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "../file/written.h"

namespace torch_pjrt {
namespace {

using tpjrt::file::test::archive_of;
using tpjrt::file::test::Folder;

constexpr int kWidth = 8;

std::string form(const std::string& name, const std::string& shape) {
  return R"({"name":")" + name + R"(","dtype":"float32","shape":)" + shape + R"(,"strides":[],"updated":false})";
}

// A call of a handler of the library, on x and a weight.
struct Case {
  std::string symbol, x, weight;  // their sizes, as "4x8"
  std::string attributes, layouts;
};

std::string list_of(std::string sizes) {
  for (char& each : sizes) each = each == 'x' ? ',' : each;
  return "[" + sizes + "]";
}

std::string file_of(const Case& given, float scale) {
  const std::string x = "tensor<" + given.x + "xf32>", weight = "tensor<" + given.weight + "xf32>";
  const std::string types = "%x: " + x + ", %w: " + weight;
  const std::string text = "func.func public @main(" + types + ") -> " + x + " {\n %0 = stablehlo.custom_call @own." +
                           given.symbol + "(%x, %w) {api_version = 4 : i32, backend_config = {has_bias = false, " +
                           given.attributes + ", weight = \"" + std::to_string(scale) + "\"}" + given.layouts +
                           "} : (" + x + ", " + weight + ") -> " + x + "\n return %0 : " + x + "\n}\n";
  const std::string program = R"({"file":"p.mlir","options":{},"hints":[]})";
  const std::string signature =
      R"({"format":1,"made_by":{"torch_pjrt":"0.1.0"},"weights":null,"kernels":[{"target":"own.)" + given.symbol +
      R"(","symbol":")" + given.symbol + R"(","library":"libtorch_pjrt_onednn.so","path":")" TPJRT_ONEDNN_LIBRARY +
      R"("}],"state":[{"name":"w","dtype":"float32","shape":)" + list_of(given.weight) +
      R"(,"strides":[],"updated":false,"frozen":true}],"entries":[{"name":"main","variants":[{"sizes":{},"arguments":[)" +
      form("x", list_of(given.x)) + R"(],"results":[)" + form("y", list_of(given.x)) +
      R"(],"parameters":[{"argument":0},{"state":"w"}],"outputs":[{"result":0}],"requirements":[],"composites":[],)"
      R"("ops":{},"programs":{"any":)" +
      program + R"(,"cpu":)" + program + "}}]}]}";
  std::vector<float> diagonal(kWidth * kWidth, 0);
  for (int i = 0; i < kWidth; ++i) diagonal[i * (kWidth + 1)] = scale;
  std::string header = R"({"w":{"dtype":"F32","shape":)" + list_of(given.weight) + R"(,"data_offsets":[0,256]}})";
  header.resize(120, ' ');
  std::string weights;
  tpjrt::file::test::put<uint64_t>(weights, header.size());
  weights += header;
  weights.append(reinterpret_cast<const char*>(diagonal.data()), diagonal.size() * sizeof(float));
  std::string state;
  tpjrt::file::test::put<uint64_t>(state, 2);
  return archive_of({{"program.json", signature},
                     {"p.mlir", text},
                     {"weights.safetensors", weights},
                     {"state.safetensors", state + "{}"}});
}

const Case kProduct{"torch_pjrt_frozen_product", "4x8", "8x8", "turned = false", ""};
const Case kConvolution{
    "torch_pjrt_frozen_convolution", "2x8x4x4", "8x8x1x1",
    "activation = \"relu\", dilation = array<i64: 1, 1>, groups = 1 : i64, padding = array<i64: 0, 0>, stride = "
    "array<i64: 1, 1>",
    ", operand_layouts = [dense<[1, 3, 2, 0]> : tensor<4xindex>, dense<[3, 2, 1, 0]> : tensor<4xindex>], "
    "result_layouts = [dense<[1, 3, 2, 0]> : tensor<4xindex>]"};

class OneDnnTest : public testing::TestWithParam<Case> {};

TEST_P(OneDnnTest, ThreadsCallAtOnceEachWithItsWeight) {
  const char* plugin = std::getenv("TORCH_PJRT_TEST_PLUGIN");
  if (plugin == nullptr) GTEST_SKIP() << "TORCH_PJRT_TEST_PLUGIN names no plugin";
  ::setenv("TORCH_PJRT_CACHE", "0", 1);
  Options options;
  options.plugin = plugin;
  Folder folder;
  const std::vector<int64_t> shape =
      GetParam().x == "4x8" ? std::vector<int64_t>{4, 8} : std::vector<int64_t>{2, 8, 4, 4};
  size_t count = 1;
  for (const int64_t dim : shape) count *= static_cast<size_t>(dim);
  std::vector<float> given(count);
  std::iota(given.begin(), given.end(), 1.0F);
  constexpr int kThreads = 4, kCalls = 30, kPrograms = 3;
  std::vector<Program> programs;
  for (int p = 0; p < kPrograms; ++p) {  // the last has the first one's weight
    const float scale = p == 2 ? 2 : 2 + static_cast<float>(p);
    programs.push_back(Program::open(folder.write(std::to_string(p), file_of(GetParam(), scale)), options));
  }
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        const int p = (t + i) % kPrograms;
        const auto y = programs[p]({Tensor::copy(DType::kFloat32, shape, given.data())})[0].values<float>();
        for (size_t k = 0; k < count; ++k) wrong += y[k] != given[k] * (p == 1 ? 3.0F : 2.0F);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Handlers, OneDnnTest, testing::Values(kProduct, kConvolution),
                         [](const auto& info) { return info.index == 0 ? "Product" : "Convolution"; });

}  // namespace
}  // namespace torch_pjrt
