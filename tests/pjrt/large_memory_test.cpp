// Large memory that a library frees serves its next allocation, and is never more than was in use
// (Note [Large memory]).
#include "pjrt/large_memory.h"

#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "../shared_library.h"
#include "test_client.h"

namespace tpjrt::pjrt::test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

using Take = void* (*)(size_t);
using Give = void (*)(void*);

// A library that allocates and frees.
struct Library {
  Library() {
    void* loaded = tpjrt::test::SharedLibrary(
                       "#include <stdlib.h>\n"
                       "extern \"C\" {\n"
                       "void* take(size_t bytes) { void* p = 0; return posix_memalign(&p, 64, bytes) ? 0 : p; }\n"
                       "void* take_otherwise(size_t bytes) { return malloc(bytes); }\n"
                       "void give(void* memory) { free(memory); }\n"
                       "}\n")
                       .load();
    take = reinterpret_cast<Take>(dlsym(loaded, "take"));
    take_otherwise = reinterpret_cast<Take>(dlsym(loaded, "take_otherwise"));
    give = reinterpret_cast<Give>(dlsym(loaded, "give"));
    EXPECT_TRUE(keep_large_memory(reinterpret_cast<void*>(take)));
  }
  Take take, take_otherwise;
  Give give;
};

class LargeMemory : public testing::Test {
 protected:
  void SetUp() override { return_kept_memory(); }

  static const Library& library() {
    static const Library one;
    return one;
  }
};

TEST_F(LargeMemory, IsKept) {
  void* first = library().take(16 * kMiB);
  library().give(first);
  EXPECT_GE(kept_memory(), 16 * kMiB);
  EXPECT_EQ(library().take(15 * kMiB), first);
  EXPECT_EQ(kept_memory(), 0u);
  library().give(first);
  return_kept_memory();
  EXPECT_EQ(kept_memory(), 0u);
}

TEST_F(LargeMemory, IsNeverMoreThanWasInUse) {
  void* large = library().take(320 * kMiB);  // more than the other tests have
  library().give(large);
  const size_t most = kept_memory();
  void* small = library().take(64 * kMiB);  // nobody's: the kept block is too large for it
  EXPECT_EQ(kept_memory(), 0u);
  library().give(small);
  void *one = library().take(128 * kMiB), *two = library().take(128 * kMiB);
  library().give(one);
  library().give(two);
  EXPECT_GE(kept_memory(), 256 * kMiB);
  EXPECT_LE(kept_memory(), most);
}

TEST_F(LargeMemory, OfOtherFunctionsIsFreed) {
  library().give(library().take(kMiB));
  library().give(library().take_otherwise(16 * kMiB));
  library().give(nullptr);
  EXPECT_EQ(kept_memory(), 0u);
}

TEST_F(LargeMemory, LibrariesWithoutReferencesStayAsTheyAre) {
  const int local = 0;
  EXPECT_FALSE(keep_large_memory(&local));
}

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

class LargeMemoryOfPrograms : public WithPlugin {};

TEST_F(LargeMemoryOfPrograms, IsMappedOnce) {
  if (test_client().platform_name() != "cpu") GTEST_SKIP() << "the plugin computes elsewhere";
  constexpr int64_t kFloats = 12 << 20;
  constexpr int kRuns = 8;
  const auto executable = test_client().compile(double_program(kFloats));
  const auto argument = upload(Floats(kFloats));
  const auto run_and_wait = [&] { run(*executable, *argument)->await(); };
  for (int i = 0; i < 3; ++i) run_and_wait();  // results may be freed behind the next run
  const long before = page_faults();
  for (int i = 0; i < kRuns; ++i) run_and_wait();
  EXPECT_LT(page_faults() - before, kRuns / 2 * kFloats * 4 / 4096);
}

}  // namespace
}  // namespace tpjrt::pjrt::test
