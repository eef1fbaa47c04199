// Programs: calls, state, threads, and errors.
#include <gtest/gtest.h>
#include <torch_pjrt/program.h>

#include <cstdlib>
#include <thread>

#include "by_hand.h"

namespace torch_pjrt {
namespace {

using tpjrt::file::test::archive_of;
using tpjrt::file::test::Folder;
using tpjrt::file::test::Members;
namespace by_hand = tpjrt::runner::test;

std::string thrown(const auto& action) { return tpjrt::file::test::thrown<Error>(action); }
bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* plugin = std::getenv("TORCH_PJRT_TEST_PLUGIN");
    if (plugin == nullptr) GTEST_SKIP() << "TORCH_PJRT_TEST_PLUGIN names no plugin";
    ::setenv("TORCH_PJRT_CACHE", "0", 1);
    options_.plugin = plugin;
  }

  Program open(const Members& members = by_hand::members()) {
    return Program::open(folder_.write("a.pjrt", archive_of(members)), options_);
  }
  static Tensor x(float value = 1) { return Tensor::of<float>({4}, {value, value, value, value}); }

  Folder folder_;
  Options options_;
};

TEST_F(ProgramTest, CallsByPositionAndByName) {
  const Program program = open();
  EXPECT_EQ(program.entries(), (std::vector<std::string>{"add", "read", "sized"}));
  EXPECT_EQ(program({x()})[0].values<float>(), (std::vector<float>{11, 12, 13, 14}));
  const Results results = program.call("add", {{"x", x(2)}});
  EXPECT_EQ(results["y"].values<float>(), (std::vector<float>{13, 15, 17, 19}));
  EXPECT_EQ(program.call("read", {x()})[0].values<float>(), (std::vector<float>{2, 3, 4, 5}));
}

TEST_F(ProgramTest, KeepsStateBetweenCalls) {
  const Program program = open();
  for (int i = 0; i < 5; ++i) (void)program({x()});
  EXPECT_EQ(program.state("count").values<float>(), std::vector<float>{15});
  program.set_state("count", Tensor::of<float>({}, {0}));
  EXPECT_EQ(program({x()})[0].values<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(program.state().size(), 2u);
  EXPECT_EQ(program.state("tied").values<float>(), (std::vector<float>{1, 2, 3, 4}));
  const Program other = open();
  EXPECT_EQ(other.state("count").values<float>(), std::vector<float>{10});
}

TEST_F(ProgramTest, SavesAndLoadsState) {
  const Program program = open();
  (void)program({x()});
  const std::string path = folder_.path("s.safetensors");
  program.save_state(path);
  const Program other = open();
  other.load_state(path);
  EXPECT_EQ(other.state("count").values<float>(), std::vector<float>{11});
  const std::string part = folder_.write(
      "part.safetensors",
      by_hand::safetensors_of(R"({"tied":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", {5, 5, 5, 5}));
  EXPECT_TRUE(has(thrown([&] { other.load_state(part); }), "it has no 'count'"));
  other.load_state(part, /*partial=*/true);
  EXPECT_EQ(other.state("weight").values<float>(), (std::vector<float>{5, 5, 5, 5}));
}

TEST_F(ProgramTest, LeavesWhatIsFrozen) {
  const Program program = open(by_hand::with(by_hand::members(), "program.json", by_hand::frozen_signature()));
  const Tensor fives = Tensor::of<float>({4}, {5, 5, 5, 5});
  const std::string reported =
      "'weight' was frozen when the program was exported, and stays as it is: export the model anew";
  EXPECT_TRUE(has(thrown([&] { program.set_state("tied", fives); }), reported));
  const std::string path = folder_.path("frozen.safetensors");
  program.save_state(path);
  (void)program({x()});
  program.load_state(path);
  EXPECT_EQ(program.state("count").values<float>(), std::vector<float>{10});
  open().save_state(path);
  EXPECT_TRUE(has(thrown([&] { program.load_state(path); }), reported));
  EXPECT_EQ(program.state("weight").values<float>(), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(ProgramTest, RefusesStateOfAnotherModel) {
  const Program program = open();
  const auto refused = [&](const char* header, std::vector<float> values) {
    const std::string path = folder_.write("other.safetensors", by_hand::safetensors_of(header, values));
    return thrown([&] { program.load_state(path, /*partial=*/true); });
  };
  EXPECT_TRUE(has(refused(R"({"bias":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", {1}),
                  "is state of another model: the program has nothing named 'bias'"));
  EXPECT_TRUE(has(refused(R"({"weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", {1, 2}),
                  "'weight' is float32[4] in the program and float32[2] there"));
  EXPECT_EQ(program.state("weight").values<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_TRUE(has(thrown([&] { program.save_state("/no/such/folder/s"); }), "can't be written"));
  EXPECT_TRUE(has(thrown([&] { (void)program.state("bias"); }), "no state named 'bias'"));
}

// The reason why a file has a program for each size: docs/files.md.
TEST_F(ProgramTest, PluginsRefuseOpenSizes) {
  const std::string open_text =
      by_hand::text_of("%x: tensor<?xf32>, %w: tensor<4xf32>",
                       " %0 = stablehlo.add %x, %x : tensor<?xf32>\n return %0 : tensor<?xf32>\n", "tensor<?xf32>");
  const Program program = open(by_hand::with(by_hand::members(), "read.mlir", open_text));
  EXPECT_TRUE(has(thrown([&] { (void)program.call("read", {x()}); }), "refuses the program"));
}

TEST_F(ProgramTest, ChoosesAProgramBySize) {
  const Program program = open();
  EXPECT_EQ(program.call("sized", {Tensor::of<float>({2}, {1, 2})})[0].values<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(program.call("sized", {Tensor::of<float>({3}, {1, 2, 3})})[0].shape(), Shape{3});
  EXPECT_TRUE(has(thrown([&] { (void)program.call("sized", {x()}); }),
                  "entry 'sized': argument 'x' is float32[4], expected float32[2] or with another of the sizes it was "
                  "exported for (n = 2, 3)"));
  EXPECT_EQ(program.variants("sized").size(), 2u);
}

TEST_F(ProgramTest, NamesTheArgumentThatDoesNotFit) {
  const Program program = open();
  EXPECT_EQ(thrown([&] { (void)program(std::vector<Tensor>{}); }),
            "entry 'add' takes 'x' float32[4]: 1, and 0 were given");
  EXPECT_EQ(thrown([&] { (void)program({x(), x()}); }), "entry 'add' takes 'x' float32[4]: 1, and 2 were given");
  EXPECT_EQ(thrown([&] { (void)program({Tensor::of<float>({3}, {1, 2, 3})}); }),
            "entry 'add': argument 'x' is float32[3], expected float32[4]");
  EXPECT_EQ(thrown([&] { (void)program({Tensor::of<int32_t>({4}, {1, 2, 3, 4})}); }),
            "entry 'add': argument 'x' is int32[4], expected float32[4]");
  EXPECT_EQ(thrown([&] { (void)program(std::map<std::string, Tensor>{{"z", x()}}); }),
            "entry 'add': argument 'x' is missing: float32[4]");
  EXPECT_EQ(thrown([&] { (void)program(std::map<std::string, Tensor>{{"x", x()}, {"z", x()}}); }),
            "entry 'add' takes no argument 'z'");
  EXPECT_TRUE(
      has(thrown([&] { (void)program.call("sub", {x()}); }), "has no entry 'sub'; it has 'add', 'read', 'sized'"));
  EXPECT_TRUE(has(thrown([&] { (void)program({x()})["z"]; }), "there is no result 'z'; there are 'y'"));
}

TEST_F(ProgramTest, RefusesWhatIsDamagedOrNewer) {
  const std::string whole = archive_of(by_hand::members());
  for (size_t at = 0; at < whole.size(); at += 97) {
    const std::string path = folder_.write("cut.pjrt", whole.substr(0, at));
    EXPECT_TRUE(thrown([&] { (void)Program::open(path, options_); }).starts_with("'" + path + "'")) << at;
  }
  EXPECT_TRUE(
      has(thrown([&] { (void)open(by_hand::with(by_hand::members(), "program.json", by_hand::signature("2"))); }),
          "has format 2, and this torch_pjrt reads 1: update torch_pjrt here"));
  std::string altered = whole;
  altered[altered.find(by_hand::weights()) + 100] ^= 1;
  const std::string path = folder_.write("altered.pjrt", altered);
  EXPECT_TRUE(has(thrown([&] { (void)Program::open(path, options_); }), "was altered"));
  EXPECT_TRUE(has(thrown([&] { (void)Program::open("/no/such.pjrt", options_); }), "No such file"));
}

TEST_F(ProgramTest, SaysWhatThePluginRefuses) {
  const Program program = open(by_hand::with(by_hand::members(), "add.mlir", "func.func public @main() { nonsense }"));
  EXPECT_TRUE(has(thrown([&] { (void)program({x()}); }), "refuses the program"));
  const Program few = open(by_hand::with(by_hand::members(), "add.mlir", by_hand::read_text()));
  EXPECT_TRUE(has(thrown([&] { (void)few({x()}); }), "another number of results"));
}

TEST_F(ProgramTest, TakesWeightsFromBeside) {
  Members members = by_hand::members();
  std::erase_if(members, [](const auto& member) { return member.first == "weights.safetensors"; });
  const uint32_t crc = tpjrt::file::crc32(tpjrt::file::test::bytes_of(by_hand::weights()));
  const std::string named = R"({"file":"w.safetensors","crc32":)" + std::to_string(crc) + "}";
  members = by_hand::with(members, "program.json", by_hand::signature("1", named));
  EXPECT_TRUE(has(thrown([&] { (void)open(members); }), "was saved without its weights"));
  (void)folder_.write("w.safetensors", by_hand::weights());
  EXPECT_EQ(open(members)({x()})[0].values<float>(), (std::vector<float>{11, 12, 13, 14}));
  std::string other = by_hand::weights();
  other.back() ^= 1;
  options_.weights = folder_.write("v.safetensors", other);
  EXPECT_TRUE(has(thrown([&] { (void)open(members); }), "has other weights than"));
}

TEST_F(ProgramTest, SaysWhichKernelIsNotThere) {
  const std::string kernels = R"([{"target":"t","symbol":"s","library":"libk.so","path":"/no/libk.so"}])";
  std::string text = by_hand::signature("1", "null", kernels);
  for (size_t at = 0; (at = text.find(R"("any":{"file":"add.mlir")", at)) != std::string::npos; at += 100) {
    text.insert(at, R"("cpu":{"file":"add.mlir","options":{},"hints":[]},)");
  }
  EXPECT_TRUE(has(thrown([&] { (void)open(by_hand::with(by_hand::members(), "program.json", text)); }),
                  "needs the kernel 's' of the library 'libk.so', which is not there"));
}

TEST_F(ProgramTest, ThreadsCallAtOnce) {
  const Program program = open();
  constexpr int kThreads = 4, kCalls = 50;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        (void)program({x(static_cast<float>(t))});
        const auto y = program.call("read", {x(static_cast<float>(t))})[0].values<float>();
        wrong += y != std::vector<float>{1.0F + t, 2.0F + t, 3.0F + t, 4.0F + t};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(program.state("count").values<float>(), std::vector<float>{10.0F + kThreads * kCalls});
}

TEST_F(ProgramTest, TakesResultsAndAlignedMemory) {
  const Program program = open();
  const Tensor y = program.call("read", {x()})[0];
  EXPECT_EQ(program.call("read", {y})[0].values<float>(), (std::vector<float>{3, 5, 7, 9}));
  alignas(64) const float memory[16] = {1, 1, 1, 1};
  EXPECT_EQ(program.call("read", {Tensor::view(DType::kFloat32, {4}, memory)})[0].values<float>(),
            (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(program.call("read", {Tensor::view(DType::kFloat32, {4}, memory + 1)})[0].values<float>()[0], 2);
}

TEST_F(ProgramTest, SaysThatMemoryIsLacking) {
  const std::string huge = "tensor<70368744177664x4xf32>";  // a petabyte
  const std::string text = by_hand::text_of(
      "%x: tensor<4xf32>, %w: tensor<4xf32>",
      " %0 = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<4xf32>) -> " + huge + "\n return %0 : " + huge + "\n",
      huge);
  const Program program = open(by_hand::with(by_hand::members(), "read.mlir", text));
  std::string said;
  try {
    (void)program.call("read", {x()});
  } catch (const OutOfMemory& error) {
    said = error.what();
  }
  EXPECT_TRUE(has(said, "a.pjrt', entry 'read': the device is out of memory")) << said;
  EXPECT_EQ(program({x()})[0].values<float>()[0], 11);
}

TEST_F(ProgramTest, LetsGoOfStateThatARunHasTaken) {
  const std::string huge = "tensor<70368744177664xf32>";
  const std::string text =
      by_hand::text_of("%x: tensor<4xf32>, %w: tensor<4xf32>, %n: tensor<f32> {tf.aliasing_output = 1 : i32}",
                       " %0 = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<f32>) -> " + huge + "\n" +
                           " %1 = stablehlo.add %n, %n : tensor<f32>\n return %0, %1 : " + huge + ", tensor<f32>\n",
                       "(" + huge + ", tensor<f32>)");
  const Program program = open(by_hand::with(by_hand::members(), "add.mlir", text));
  EXPECT_THROW((void)program({x()}), OutOfMemory);
  const std::string said = thrown([&] { (void)program.state("count"); });
  if (!said.empty()) {  // the plugin may not have consumed it
    EXPECT_TRUE(has(said, "'count' lost its value in a run that failed: load_state"));
    program.set_state("count", Tensor::of<float>({}, {1}));
  }
  EXPECT_EQ(program.call("read", {x()})[0].values<float>()[0], 2);
}

TEST_F(ProgramTest, Describes) {
  const std::string text = open().describe();
  for (const char* part :
       {"entry add", "entry sized, n = 3", "takes  x  float32[4]", "1  stablehlo.add", "weights  1  16 B"}) {
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  }
}

TEST(Plugin, IsLookedForByName) {
  ::unsetenv("TORCH_PJRT_PLUGIN");
  EXPECT_TRUE(has(thrown([] { (void)Program::open("a.pjrt"); }), "no plugin was named"));
  EXPECT_TRUE(
      has(thrown([] { (void)Program::open("a.pjrt", {.plugin = "none_such"}); }), "there is no plugin 'none_such'"));
  EXPECT_TRUE(has(thrown([] { (void)Program::open("a.pjrt", {.plugin = "/no/such.so"}); }), "there is no plugin"));
}

}  // namespace
}  // namespace torch_pjrt
