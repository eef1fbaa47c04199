// A shared library compiled from C++ source, by the compiler named by CXX, or `c++`.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace tpjrt::test {

// Its folder is deleted at the end of its life; what was loaded from it stays.
class SharedLibrary {
 public:
  // `flags`: of the compiler, which calls the linker.
  explicit SharedLibrary(const std::string& source, const std::string& flags = "") {
    char name[] = "/tmp/torch_pjrt_test_XXXXXX";
    folder_ = mkdtemp(name);
    std::ofstream(folder_ + "/library.cpp") << source;
    const char* compiler = std::getenv("CXX");
    const std::string command = std::string(compiler ? compiler : "c++") + " -shared -fPIC " + flags + " -o " + path() +
                                " " + folder_ + "/library.cpp";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
  ~SharedLibrary() {
    unlink(path().c_str());
    unlink((folder_ + "/library.cpp").c_str());
    rmdir(folder_.c_str());
  }
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  std::string path() const { return folder_ + "/library.so"; }
  // Loads it for the life of the process.
  void* load() const { return dlopen(path().c_str(), RTLD_NOW | RTLD_LOCAL); }

 private:
  std::string folder_;
};

}  // namespace tpjrt::test
