// The host memory that a process may use, from files in a folder that replaces "/".
#include "pjrt/memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tpjrt::pjrt {
namespace {

class HostMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "host_memory_test";
    std::filesystem::remove_all(root_);
    write("/proc/meminfo", "MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:  800 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  HostMemory ask() const { return host_memory(root_); }

  std::string root_;
};

TEST_F(HostMemoryTest, OfTheMachine) {
  EXPECT_EQ(ask().total, 1000u * 1024);
  EXPECT_EQ(ask().available, 800u * 1024);
  EXPECT_GT(host_memory().total, 0u);
  EXPECT_LE(host_memory().available, host_memory().total);
}

TEST_F(HostMemoryTest, OfAGroup) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(ask().total, 1000u * 1024);
  write("/sys/fs/cgroup/a/memory.max", "500000\n");
  write("/sys/fs/cgroup/a/memory.current", "100000\n");
  EXPECT_EQ(ask().total, 500000u);
  EXPECT_EQ(ask().available, 400000u);
  write("/sys/fs/cgroup/a/b/memory.max", "200000\n");
  write("/sys/fs/cgroup/a/b/memory.current", "300000\n");
  EXPECT_EQ(ask().total, 200000u);
  EXPECT_EQ(ask().available, 0u);
}

TEST_F(HostMemoryTest, OfAContainerWhoseRootIsItsGroup) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/memory.max", "123456\n");
  EXPECT_EQ(ask().total, 123456u);
}

TEST_F(HostMemoryTest, OfVersion1) {
  write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/y\n");
  write("/sys/fs/cgroup/memory/y/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(ask().total, 1000u * 1024);
  write("/sys/fs/cgroup/memory/y/memory.limit_in_bytes", "654321\n");
  EXPECT_EQ(ask().total, 654321u);
}

}  // namespace
}  // namespace tpjrt::pjrt
