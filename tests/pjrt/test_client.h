// Fixtures for every test of this room: the plugin under test, a client of it, and small programs.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "pjrt/client.h"

namespace tpjrt::pjrt::test {

inline const char* plugin_path() { return std::getenv("TORCH_PJRT_TEST_PLUGIN"); }

// Returns the client of the plugin at TORCH_PJRT_TEST_PLUGIN. Leaked, like every client.
inline Client& test_client() {
  static auto& client = *new std::shared_ptr<Client>(Client::create(Api::load(plugin_path())));
  return *client;
}

class WithPlugin : public testing::Test {
 protected:
  void SetUp() override {
    if (plugin_path() == nullptr) GTEST_SKIP() << "TORCH_PJRT_TEST_PLUGIN names no plugin";
  }
};

// Returns a program on one f32 vector: (a) -> a + a. `donate` aliases a to the result.
inline std::string double_program(int64_t size, bool donate = false) {
  const std::string type = "tensor<" + std::to_string(size) + "xf32>";
  return "func.func public @main(%a: " + type + (donate ? " {tf.aliasing_output = 0 : i32}" : "") + ") -> " + type +
         " {\n %0 = stablehlo.add %a, %a : " + type + "\n return %0 : " + type + "\n}";
}

// 64-byte aligned floats: 1, 2, 3, …
struct Floats {
  explicit Floats(size_t size) : size(size) {
    data = static_cast<float*>(std::aligned_alloc(64, (size * sizeof(float) + 127) / 64 * 64));
    for (size_t i = 0; i < size; ++i) data[i] = static_cast<float>(i + 1);
  }
  ~Floats() { std::free(data); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  std::vector<int64_t> dims() const { return {static_cast<int64_t>(size)}; }
  size_t size;
  float* data;
};

inline std::shared_ptr<Buffer> upload(const Floats& floats, HostBufferSemantics semantics = HostBufferSemantics::kCopy,
                                      size_t device_index = 0) {
  return test_client().buffer_from_host(floats.data, PJRT_Buffer_Type_F32, floats.dims(), semantics, device_index, {});
}

inline std::vector<float> download(const Buffer& buffer) {
  std::vector<float> values(buffer.size_in_bytes() / sizeof(float));
  buffer.copy_to_host(values.data(), buffer.size_in_bytes());
  return values;
}

// Runs a program with one argument and one result.
inline std::shared_ptr<Buffer> run(const Executable& executable, const Buffer& argument,
                                   const std::vector<int64_t>& non_donatable = {}) {
  const Buffer* arguments[] = {&argument};
  std::vector<std::shared_ptr<Buffer>> results;
  executable.execute(arguments, non_donatable, results);
  return results.at(0);
}

// Returns the message that `action` throws, which must be an E; "" if it doesn't throw.
template <class E = Error, class Action>
std::string thrown(Action&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace tpjrt::pjrt::test
