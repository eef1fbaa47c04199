// Loads plugins: a file that is no plugin gives a message that names the path and the cure.
#include <dirent.h>
#include <unistd.h>

#include <fstream>

#include "../shared_library.h"
#include "test_client.h"

namespace tpjrt::pjrt::test {
namespace {

using tpjrt::test::SharedLibrary;

// Returns the source of a plugin whose table has this size and version and no functions.
std::string plugin_source(size_t struct_size, int major, int minor) {
  return "struct Table { unsigned long size; void* extensions; unsigned long version_size; void* version_extensions;\n"
         "  int major, minor; void* functions[300]; };\n"
         "static Table table = {" +
         std::to_string(struct_size) + ", 0, 24, 0, " + std::to_string(major) + ", " + std::to_string(minor) +
         ", {}};\n"
         "extern \"C\" __attribute__((visibility(\"default\"))) const Table* GetPjrtApi() { return &table; }\n";
}

std::string load_error(const std::string& path) {
  return thrown<PluginError>([&] { Api::load(path); });
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in '" << text << "'";
}

TEST(Load, NoSuchFile) {
  const std::string error = load_error("/nowhere/plugin.so");
  expect_contains(error, "cannot load the PJRT plugin '/nowhere/plugin.so'");
  expect_contains(error, "No such file");
  expect_contains(error, "pip install xla-cpu-pjrt");
}

TEST(Load, NotASharedLibrary) {
  char name[] = "/tmp/torch_pjrt_test_XXXXXX";
  close(mkstemp(name));
  std::ofstream(name) << "text";
  const std::string error = load_error(name);
  unlink(name);
  expect_contains(error, std::string("cannot load the PJRT plugin '") + name + "'");
  expect_contains(error, "TORCH_PJRT_PLUGIN");
}

TEST(Load, NotAPlugin) {
  const SharedLibrary library("int nothing;");
  const std::string error = load_error(library.path());
  expect_contains(error, "'" + library.path() + "' is not a PJRT plugin");
  expect_contains(error, "GetPjrtApi");
}

TEST(Load, NoTable) {
  const SharedLibrary library("extern \"C\" void* GetPjrtApi() { return nullptr; }");
  expect_contains(load_error(library.path()), "gave no function table");
}

TEST(Load, TooOldToHaveAVersion) {
  const SharedLibrary library(plugin_source(16, 0, 0));
  expect_contains(load_error(library.path()), "is too old: its function table has 16 bytes and no version");
}

TEST(Load, TooOld) {
  const SharedLibrary library(plugin_source(200, 0, 3));
  const std::string error = load_error(library.path());
  expect_contains(error, "'" + library.path() + "' is too old: it has API version 0.3");
  expect_contains(error, "pip install -U xla-cpu-pjrt");
}

TEST(Load, OtherMajorVersion) {
  const SharedLibrary library(plugin_source(sizeof(PJRT_Api), 7, 1));
  expect_contains(load_error(library.path()), "has API version 7.1, and only versions 0.x can be used");
}

// If the table is long enough but its entries are null, the plugin loads, and each call reports the missing function.
TEST(Load, FunctionsThatAreNotThere) {
  const SharedLibrary library(plugin_source(sizeof(PJRT_Api), 0, 50));
  const Api& api = Api::load(library.path());
  EXPECT_EQ(api.minor(), 50);
  EXPECT_FALSE(api.has(&PJRT_Api::PJRT_Client_Create));
  EXPECT_TRUE(api.attributes().empty());
  EXPECT_EQ(api.extension(PJRT_Extension_Type_FFI), nullptr);
  try {
    Client::create(api);
    FAIL() << "a client of a plugin without PJRT_Client_Create";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kUnimplemented);
    EXPECT_EQ(error.function, "PJRT_Client_Create");
    expect_contains(error.what(), library.path());
    expect_contains(error.what(), "API 0.50");
    expect_contains(error.what(), "does not implement this function");
  }
}

class Plugin : public WithPlugin {};

TEST_F(Plugin, IsLoadedOnce) {
  const Api& api = Api::load(plugin_path());
  EXPECT_EQ(&api, &Api::load(plugin_path()));
  EXPECT_EQ(api.path(), plugin_path());
  EXPECT_EQ(api.major(), 0);
  EXPECT_TRUE(api.has(&PJRT_Api::PJRT_Client_Create));
  EXPECT_EQ(api.extension(100000), nullptr);
}

TEST_F(Plugin, SaysWhatItIs) {
  const Client& client = test_client();
  EXPECT_FALSE(client.platform_name().empty());
  ASSERT_FALSE(client.devices().empty());
  for (const Device& device : client.devices()) {
    EXPECT_NE(device.handle, nullptr);
    EXPECT_FALSE(device.kind.empty());
    EXPECT_FALSE(device.debug_string.empty());
  }
}

TEST_F(Plugin, TakesOptionsOfItsOwn) {
  if (test_client().platform_name() != "cpu") GTEST_SKIP() << "the option is the CPU plugin's";
  EXPECT_EQ(Client::create(test_client().api(), {{"cpu_device_count", int64_t{2}}})->devices().size(), 2u);
}

}  // namespace
}  // namespace tpjrt::pjrt::test
