// Which thread does an awaited compile: one in the background, or the one that waits.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "engine/executable/background.h"

namespace tpjrt::engine::test {
namespace {

using Enough = BackgroundCompile::Enough;

// Stands for an executable; nobody looks inside.
CompiledText made(bool from_disk) {
  static auto one = std::make_shared<int>(1);
  return {std::shared_ptr<pjrt::Executable>(one, reinterpret_cast<pjrt::Executable*>(one.get())), from_disk};
}

// A compile that ends on request, like one that a busy machine starves. Its thread may outlive this.
struct Starved {
  std::shared_ptr<std::promise<void>> begun = std::make_shared<std::promise<void>>();
  std::promise<void> fed;
  BackgroundCompile compile{[begun = begun, end = fed.get_future().share()] {
    begun->set_value();
    end.wait();
    return made(/*from_disk=*/true);
  }};
  Starved() { begun->get_future().wait(); }
};

TEST(Background, AWaitTakesOverWhatIsNotDone) {
  Starved starved;
  int calls = 0;
  const CompiledText result = starved.compile.result([&](const Enough& enough) {
    ++calls;
    EXPECT_FALSE(enough());
    return made(/*from_disk=*/false);
  });
  EXPECT_FALSE(result.from_disk) << "the waiting thread's own";
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(starved.compile.is_done());
  starved.fed.set_value();
}

TEST(Background, WhatIsDoneMeanwhileIsTaken) {
  Starved starved;
  const CompiledText result = starved.compile.result([&](const Enough& enough) {
    starved.fed.set_value();
    while (!enough()) std::this_thread::yield();
    return CompiledText{};
  });
  EXPECT_TRUE(result.from_disk);
}

TEST(Background, AnInterruptedWaitMayBeAskedAgain) {
  Starved starved;
  EXPECT_THROW(starved.compile.result([](const Enough&) -> CompiledText { throw std::runtime_error("Ctrl-C"); }),
               std::runtime_error);
  EXPECT_FALSE(starved.compile.result([](const Enough&) { return made(/*from_disk=*/false); }).from_disk);
  starved.fed.set_value();
}

TEST(Background, WhatIsDoneIsNotDoneAgain) {
  BackgroundCompile compile([] { return made(/*from_disk=*/true); });
  while (!compile.is_done()) std::this_thread::yield();
  const CompiledText result = compile.result([](const Enough&) -> CompiledText { throw std::logic_error("again"); });
  EXPECT_TRUE(result.from_disk);
}

TEST(Background, ItsThreadsYieldAndDoNotStarve) {
  std::promise<std::pair<int, int>> reported;
  BackgroundCompile compile([&] {
    reported.set_value({getpriority(PRIO_PROCESS, 0), sched_getscheduler(0)});  // of this thread
    return made(/*from_disk=*/true);
  });
  const auto [nice, policy] = reported.get_future().get();
  EXPECT_EQ(nice, std::max(5, getpriority(PRIO_PROCESS, 0)));
  EXPECT_EQ(policy, SCHED_BATCH);
  while (!compile.is_done()) std::this_thread::yield();
}

}  // namespace
}  // namespace tpjrt::engine::test
