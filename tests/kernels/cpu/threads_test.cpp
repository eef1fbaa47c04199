// Handlers called from several threads at once, by XLA and directly; weights that change meanwhile; forks.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <sys/wait.h>

#include <atomic>
#include <functional>
#include <thread>

#include "../../pjrt/test_client.h"
#include "call.h"
#include "kernels/cpu/frozen_weights.h"
#include "kernels/cpu/team.h"

namespace tpjrt::kernels::test {
namespace {

constexpr int kThreads = 4, kTimes = 20;

void from_threads(const std::function<void(int thread)>& work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&work, t] {
      for (int i = 0; i < kTimes; ++i) work(t);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

const Ints kOnes{1, 1}, kNone{0, 0};
// Makes a call of a convolution with these operands.
void convolve(Call& call) {
  call.of("aten::convolution",
          {operand(0), operand(1), {}, given(kOnes), given(kOnes), given(kOnes), given(false), given(kNone), given(1)},
          {0});
}

TEST(KernelTeam, WorksForAllThreads) {
  set_team_size(2);
  std::atomic<int> done = 0;
  int large = 0;  // only the team's thread counts
  from_threads([&](int thread) {
    compute(thread % 2 == 0, [&] {
      if (thread % 2 == 0) ++large;
      ++done;
    });
  });
  EXPECT_EQ(done, kThreads * kTimes);
  EXPECT_EQ(large, kThreads * kTimes / 2);
}

TEST(KernelTeam, HandsOverWhatIsThrown) {
  set_team_size(2);
  from_threads([](int thread) {
    const std::string said = std::to_string(thread);
    try {
      compute(thread % 2 == 0, [&] { throw std::runtime_error(said); });
      ADD_FAILURE();
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), said);
    }
  });
}

TEST(KernelTeam, LeavesAThreadAsManyAsItHad) {
  set_team_size(2);
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  for (const bool large : {false, true}) {
    int within = 0;
    compute(large, [&] { within = at::get_num_threads(); });
    EXPECT_EQ(within, large ? 2 : 1);
    EXPECT_EQ(at::get_num_threads(), 3);
  }
  EXPECT_THROW(compute(false, [] { throw std::runtime_error(""); }), std::runtime_error);
  EXPECT_EQ(at::get_num_threads(), 3);
  at::set_num_threads(before);
}

TEST(KernelThreads, CallsAtOnce) {
  set_team_size(2);
  const at::Tensor a = at::randn({40, 60}), b = at::randn({60, 50}), x = at::randn({1, 4, 9, 9}),
                   w = at::randn({5, 4, 3, 3}), large = at::randn({8, 32, 20, 20}), v = at::randn({32, 32, 3, 3});
  const at::Tensor product_of = a.mm(b),
                   convolution_of = at::convolution(x, w, {}, kOnes, kOnes, kOnes, false, kNone, 1),
                   large_of = at::convolution(large, v, {}, kOnes, kOnes, kOnes, false, kNone, 1);
  from_threads([&](int thread) {
    Call call(aten_call);
    if (thread == 0) {
      call.operand(a).operand(b).result({40, 50}).of("aten::mm", {operand(0), operand(1)}, {0}, "out");
    } else {
      call.images(thread == 1 ? x : large).operand(thread == 1 ? w : v);
      call.result_images((thread == 1 ? convolution_of : large_of).sizes());
      convolve(call);
    }
    ASSERT_EQ(call.run(), "");
    EXPECT_TRUE(thread == 0   ? near(call.got(), product_of)
                : thread == 1 ? near(call.got_images(), convolution_of)
                              : near(call.got_images(), large_of));
  });
}

TEST(KernelThreads, ThatThrowAtOnceReadTheirOwn) {
  keep_call("throws", {{}, {}, [](const auto&, const auto&) -> std::vector<at::Tensor> { TORCH_CHECK(false, "no"); }});
  from_threads([](int) {
    Call call(aten_call, {{kAtenText, std::string("throws")}});
    call.result({}, at::kLong);
    ASSERT_EQ(call.run(), "");
    EXPECT_THROW(std::rethrow_exception(thrown(call.got().item().toLong())), c10::Error);
  });
}

// A read of a frozen weight gives one of the values that were put, never a mixture.
TEST(KernelThreads, FrozenWeightsThatChangeMeanwhile) {
  if (!at::hasMKLDNN()) GTEST_SKIP() << "this torch has no oneDNN";
  set_team_size(2);
  FrozenWeight place;
  const at::Tensor x = at::ones({1, 1, 5, 5});
  const auto put = [&](double value) {
    place.put(at::full({16, 1, 1, 1}, value), {}, {kOnes, kNone, kOnes, 1}, x.sizes());
  };
  put(1);
  from_threads([&](int thread) {
    if (thread == 0) return put(2), put(1);
    Call call(aten_call);
    call.images(x).result_images({1, 16, 5, 5});
    call.of("torch_pjrt::frozen_convolution",
            {operand(0),
             {},
             given(place.number()),
             given(Ints{1, 16, 5, 5}),
             given(kOnes),
             given(kNone),
             given(kOnes),
             given(1),
             given("none")},
            {0});
    ASSERT_EQ(call.run(), "");
    const double first = call.got().flatten()[0].item().toDouble();
    EXPECT_TRUE(first == 1 || first == 2);
    EXPECT_TRUE(call.got().eq(first).all().item().toBool());
  });
}

// An op of this project on CPU tensors works in a forked child, too.
TEST(KernelForks, ChildrenComputeByThemselves) {
  set_team_size(2);
  compute(true, [] {});  // starts a team, which the child doesn't have
  FrozenWeight place;
  const at::Tensor x = at::randn({1, 4, 8, 8}), w = at::randn({4, 4, 3, 3});
  if (at::hasMKLDNN()) place.put(w, {}, {kOnes, kOnes, kOnes, 1}, x.sizes());
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    at::set_num_threads(1);  // like data loaders' workers: a child has no OpenMP threads
    bool right = true;
    if (at::hasMKLDNN()) {
      torch::jit::Stack stack{
          x, std::optional<at::Tensor>(), place.number(), x.sizes(), kOnes, kOnes, kOnes, int64_t{1}, "none"};
      c10::Dispatcher::singleton().findSchemaOrThrow("torch_pjrt::frozen_convolution", "").callBoxed(stack);
      right = near(stack.front().toTensor(), at::convolution(x, w, {}, kOnes, kOnes, kOnes, false, kNone, 1));
    }
    const at::Tensor h = at::randn({2, 3});
    torch::jit::Stack stack{
        at::randn({5, 2, 3}), h,    std::optional<at::Tensor>(), at::randn({3, 3}), std::optional<at::Tensor>(),
        "rnn_tanh",           false};
    c10::Dispatcher::singleton().findSchemaOrThrow("torch_pjrt::recurrent_layer", "").callBoxed(stack);
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// Returns a program that squares a square matrix by a kept call.
std::string squaring(int64_t size) {
  const std::string text = "square " + std::to_string(size);
  const graph::TypePtr of_square = type_like(at::zeros({size, size}));
  const auto square = [](const auto& given, const auto&) { return std::vector{given[0].mm(given[0])}; };
  keep_call(text, {{of_square}, {of_square}, square, size > 100, false});
  const std::string type = "tensor<" + std::to_string(size) + "x" + std::to_string(size) + "xf32>";
  return "func.func public @main(%a: " + type + ") -> " + type +
         " {\n %0 = stablehlo.custom_call @torch_pjrt.aten(%a) {api_version = 4 : i32, backend_config = {call = \"" +
         text + "\"}} : (" + type + ") -> " + type + "\n return %0 : " + type + "\n}";
}

class KernelsInPrograms : public pjrt::test::WithPlugin {};

TEST_F(KernelsInPrograms, FromXlasThreads) {
  if (!give_cpu_kernels(pjrt::test::test_client())) GTEST_SKIP() << "the plugin takes no handlers";
  set_team_size(2);
  std::map<int64_t, std::shared_ptr<pjrt::Executable>> programs;
  for (const int64_t size : {3, 128}) programs[size] = pjrt::test::test_client().compile(squaring(size));
  from_threads([&](int thread) {
    const int64_t size = thread % 2 == 0 ? 3 : 128;
    const at::Tensor x = at::randn({size, size});
    const auto given = pjrt::test::test_client().buffer_from_host(x.data_ptr(), PJRT_Buffer_Type_F32, Ints{size, size},
                                                                  pjrt::HostBufferSemantics::kCopy, 0, {});
    std::vector<float> y = pjrt::test::download(*pjrt::test::run(*programs.at(size), *given));
    EXPECT_TRUE(near(at::from_blob(y.data(), {size, size}), x.mm(x)));
  });
}

}  // namespace
}  // namespace tpjrt::kernels::test
