// A PJRT plugin compiles every op's text: the plugin at the path TORCH_PJRT_TEST_PLUGIN.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pjrt_c_api.h>

#include <cstdlib>
#include <string_view>

#include "modules.h"

namespace tpjrt::hlo::test {
namespace {

// One replica, one partition, in protobuf's wire format.
constexpr std::string_view kOptions("\x1a\x04\x20\x01\x28\x01", 6);

class Plugin : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("TORCH_PJRT_TEST_PLUGIN");
    if (!path) GTEST_SKIP() << "TORCH_PJRT_TEST_PLUGIN names no plugin";
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    api_ = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
    PJRT_Plugin_Initialize_Args initialize{};
    initialize.struct_size = PJRT_Plugin_Initialize_Args_STRUCT_SIZE;
    ASSERT_EQ(message(api_->PJRT_Plugin_Initialize(&initialize)), "");
    PJRT_Client_Create_Args create{};
    create.struct_size = PJRT_Client_Create_Args_STRUCT_SIZE;
    ASSERT_EQ(message(api_->PJRT_Client_Create(&create)), "");
    client_ = create.client;
  }

  void TearDown() override {
    if (!client_) return;
    PJRT_Client_Destroy_Args destroy{};
    destroy.struct_size = PJRT_Client_Destroy_Args_STRUCT_SIZE;
    destroy.client = client_;
    EXPECT_EQ(message(api_->PJRT_Client_Destroy(&destroy)), "");
  }

  // Returns the compiler's message, or "" if it accepts the text.
  std::string compile(std::string text) {
    PJRT_Program program{};
    program.struct_size = PJRT_Program_STRUCT_SIZE;
    program.code = text.data();
    program.code_size = text.size();
    program.format = "mlir";
    program.format_size = 4;
    PJRT_Client_Compile_Args compile{};
    compile.struct_size = PJRT_Client_Compile_Args_STRUCT_SIZE;
    compile.client = client_;
    compile.program = &program;
    compile.compile_options = kOptions.data();
    compile.compile_options_size = kOptions.size();
    std::string error = message(api_->PJRT_Client_Compile(&compile));
    if (!compile.executable) return error;
    PJRT_LoadedExecutable_Destroy_Args destroy{};
    destroy.struct_size = PJRT_LoadedExecutable_Destroy_Args_STRUCT_SIZE;
    destroy.executable = compile.executable;
    return error + message(api_->PJRT_LoadedExecutable_Destroy(&destroy));
  }

 private:
  std::string message(PJRT_Error* error) {
    if (!error) return "";
    PJRT_Error_Message_Args get{};
    get.struct_size = PJRT_Error_Message_Args_STRUCT_SIZE;
    get.error = error;
    api_->PJRT_Error_Message(&get);
    std::string text(get.message, get.message_size);
    PJRT_Error_Destroy_Args destroy{};
    destroy.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE;
    destroy.error = error;
    api_->PJRT_Error_Destroy(&destroy);
    return text;
  }

  const PJRT_Api* api_ = nullptr;
  PJRT_Client* client_ = nullptr;
};

TEST_F(Plugin, TakesEveryOp) {
  for (const Module& module : modules()) {
    std::string text = module.text();
    EXPECT_EQ(compile(text), "") << text;
  }
}

TEST_F(Plugin, TakesAliasesLocationsAndAnyName) {
  Builder b("torch \"quoted\" name");
  Value x = b.parameter(f32({4}));
  b.set_location("/a \"b\"/model.py", 12);
  Value y = b.reduce("add", x, b.constant(0.0, f32({})), {0});
  Value z = b.binary("add", x, b.broadcast_in_dim(y, {4}, {}));
  b.alias(0, 1);
  std::string text = b.finish({y, z});
  EXPECT_EQ(compile(text), "") << text;
}

}  // namespace
}  // namespace tpjrt::hlo::test
