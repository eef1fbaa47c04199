// References of chosen libraries lead to other functions, and those of others do not.
#include "linkage/redirect.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "../shared_library.h"

namespace tpjrt::linkage::test {
namespace {

constexpr pid_t kNobody = -7;
pid_t nobody() { return kNobody; }

using Ask = pid_t (*)();

// A library that calls getpid, and whose data has its address. `flags` are the linker's.
struct Asking {
  explicit Asking(const std::string& flags) {
    const tpjrt::test::SharedLibrary library(
        "#include <unistd.h>\n"
        "static pid_t (*const volatile address)() = getpid;\n"
        "extern \"C\" pid_t by_call() { return getpid(); }\n"
        "extern \"C\" pid_t by_address() { return address(); }\n",
        flags);
    path = library.path();
    void* loaded = library.load();
    by_call = reinterpret_cast<Ask>(dlsym(loaded, "by_call"));
    by_address = reinterpret_cast<Ask>(dlsym(loaded, "by_address"));
  }
  std::string path;
  Ask by_call, by_address;
};

size_t redirect_in(const Asking& library) {
  std::array redirections{Redirection{"getpid", reinterpret_cast<void*>(&nobody)}};
  redirect([&](const Library& one) { return one.contains(reinterpret_cast<const void*>(library.by_call)); },
           redirections);
  return redirections[0].count;
}

// Returns the addresses of the library's memory that can be written, as the kernel lists them.
std::string writable(const Asking& library) {
  std::ifstream maps("/proc/self/maps");
  std::string found;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(library.path) != std::string::npos && line.find(" rw") != std::string::npos) found += line + "\n";
  }
  return found;
}

TEST(Redirect, LeadsCallsAndAddressesOfOneLibrary) {
  const Asking asking(""), other("");
  EXPECT_EQ(asking.by_call(), getpid());
  EXPECT_EQ(redirect_in(asking), 2u);
  EXPECT_EQ(asking.by_call(), kNobody);
  EXPECT_EQ(asking.by_address(), kNobody);
  EXPECT_EQ(other.by_call(), getpid());
  EXPECT_EQ(other.by_address(), getpid());
  EXPECT_EQ(redirect_in(asking), 2u);  // once more
}

TEST(Redirect, LeavesReadOnlyMemoryReadOnly) {
  const Asking asking("-Wl,-z,relro,-z,now");
  const std::string before = writable(asking);
  EXPECT_EQ(redirect_in(asking), 2u);
  EXPECT_EQ(asking.by_call(), kNobody);
  EXPECT_EQ(asking.by_address(), kNobody);
  EXPECT_EQ(writable(asking), before);
}

TEST(Redirect, CountsNothingWhereThereIsNoSuchReference) {
  const Asking asking("");
  std::array redirections{Redirection{"tpjrt_no_such_function", reinterpret_cast<void*>(&nobody)}};
  redirect([](const Library&) { return true; }, redirections);
  EXPECT_EQ(redirections[0].count, 0u);
  std::array others{Redirection{"getpid", reinterpret_cast<void*>(&nobody)}};
  redirect([](const Library& one) { return one.path == "/no/such/library"; }, others);
  EXPECT_EQ(others[0].count, 0u);
  EXPECT_EQ(asking.by_call(), getpid());
}

}  // namespace
}  // namespace tpjrt::linkage::test
