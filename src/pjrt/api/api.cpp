// Loads plugins, checks their versions, and handles failed calls.
#include "pjrt/api/api.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

#include <array>
#include <cstring>
#include <memory>
#include <mutex>

namespace tpjrt::pjrt {

namespace {

constexpr const char* kCure =
    "Install a newer plugin (`pip install -U xla-cpu-pjrt`) or set TORCH_PJRT_PLUGIN to the path of one.";

// Every function up to this one is in the table since PJRT API 0.29 (2023). Without it the types of results are
// unknown.
constexpr size_t kSmallestTable = offsetof(PJRT_Api, PJRT_Executable_OutputDimensions) + sizeof(void*);

std::string canonical(const std::string& path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) != nullptr ? resolved : path;
}

const PJRT_Api* open_plugin(const std::string& path) {
  // RTLD_LOCAL keeps the plugin's symbols (LLVM, protobuf, oneDNN) apart from torch's.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    throw PluginError("cannot load the PJRT plugin '" + path + "': " + (reason ? reason : "unknown reason") +
                      ". Give the path of a PJRT plugin's shared library, for example by TORCH_PJRT_PLUGIN, or "
                      "install one: `pip install xla-cpu-pjrt`.");
  }
  auto* get_api = reinterpret_cast<const PJRT_Api* (*)()>(::dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) {
    ::dlclose(library);
    throw PluginError("'" + path +
                      "' is not a PJRT plugin: it is a shared library without the function GetPjrtApi. "
                      "Give the path of a plugin, such as xla_cpu_pjrt.so of `pip install xla-cpu-pjrt`.");
  }
  const PJRT_Api* table = get_api();
  if (table == nullptr) throw PluginError("the PJRT plugin '" + path + "' gave no function table. " + kCure);
  return table;
}

void check_version(const std::string& path, const PJRT_Api& table) {
  constexpr size_t kVersionEnd = offsetof(PJRT_Api, pjrt_api_version) + sizeof(PJRT_Api_Version);
  if (table.struct_size < kVersionEnd) {
    throw PluginError("the PJRT plugin '" + path + "' is too old: its function table has " +
                      std::to_string(table.struct_size) + " bytes and no version. " + kCure);
  }
  const PJRT_Api_Version& version = table.pjrt_api_version;
  const std::string spelled = std::to_string(version.major_version) + "." + std::to_string(version.minor_version);
  if (version.major_version != PJRT_API_MAJOR) {
    throw PluginError("the PJRT plugin '" + path + "' has API version " + spelled + ", and only versions " +
                      std::to_string(PJRT_API_MAJOR) +
                      ".x can be used. Install a plugin of that API, or a newer "
                      "torch-pjrt.");
  }
  if (table.struct_size < kSmallestTable) {
    throw PluginError("the PJRT plugin '" + path + "' is too old: it has API version " + spelled +
                      " and a function "
                      "table of " +
                      std::to_string(table.struct_size) + " bytes, where at least " + std::to_string(kSmallestTable) +
                      " are needed. " + kCure);
  }
}

std::map<std::string, std::string> ask_attributes(const Api& api) {
  std::map<std::string, std::string> attributes;
  if (!api.has(&PJRT_Api::PJRT_Plugin_Attributes)) return attributes;
  TPJRT_ARGS(PJRT_Plugin_Attributes, args);
  TPJRT_CALL(api, PJRT_Plugin_Attributes, args);
  for (size_t i = 0; i < args.num_attributes; ++i) {
    const PJRT_NamedValue& value = args.attributes[i];
    attributes.emplace(std::string(value.name, value.name_size), to_string(value));
  }
  return attributes;
}

}  // namespace

Api::Api(std::string path, const PJRT_Api* table) : path_(std::move(path)), table_(table) {}

const Api& Api::load(const std::string& path) {
  // Both are leaked, so that threads may still use a plugin while the process exits.
  static auto& mutex = *new std::mutex;
  static auto& loaded = *new std::map<std::string, std::unique_ptr<Api>>;
  const std::string key = canonical(path);
  const std::lock_guard<std::mutex> lock(mutex);
  if (auto found = loaded.find(key); found != loaded.end()) return *found->second;

  const PJRT_Api* table = open_plugin(path);
  check_version(path, *table);
  std::unique_ptr<Api> api(new Api(path, table));
  try {
    if (api->has(&PJRT_Api::PJRT_Plugin_Initialize)) {
      TPJRT_ARGS(PJRT_Plugin_Initialize, args);
      TPJRT_CALL(*api, PJRT_Plugin_Initialize, args);
    }
    api->attributes_ = ask_attributes(*api);
  } catch (const Error& error) {
    throw PluginError("the PJRT plugin '" + path + "' failed to initialize: " + error.what());
  }
  return *loaded.emplace(key, std::move(api)).first->second;
}

const PJRT_Extension_Base* Api::extension(int type) const {
  const PJRT_Extension_Base* extension = table_->extension_start;
  for (; extension != nullptr; extension = extension->next) {
    // Read as an integer, because a type of a later API is no value of the enum.
    int found = 0;
    static_assert(sizeof found == sizeof extension->type);
    std::memcpy(&found, &extension->type, sizeof found);
    if (found == type) break;
  }
  return extension;
}

void Api::destroy(PJRT_Error* error) const noexcept {
  TPJRT_ARGS(PJRT_Error_Destroy, args);
  args.error = error;
  table_->PJRT_Error_Destroy(&args);
}

void Api::throw_error(const char* name, PJRT_Error* error) const {
  TPJRT_ARGS(PJRT_Error_Message, message);
  message.error = error;
  table_->PJRT_Error_Message(&message);
  std::string text(message.message, message.message_size);

  TPJRT_ARGS(PJRT_Error_GetCode, code);
  code.error = error;
  // If the code can't be read, it stays unknown.
  ErrorCode number = ErrorCode::kUnknown;
  if (PJRT_Error* nested = table_->PJRT_Error_GetCode(&code)) {
    destroy(nested);
  } else {
    number = static_cast<ErrorCode>(code.code);
  }
  destroy(error);
  throw Error(number, name, text);
}

void Api::throw_missing(const char* name) const {
  throw Error(ErrorCode::kUnimplemented, name,
              "the PJRT plugin '" + path_ + "' (API " + std::to_string(major()) + "." + std::to_string(minor()) +
                  ") does not implement this function");
}

std::string to_string(const PJRT_NamedValue& value) {
  switch (value.type) {
    case PJRT_NamedValue_kString: return std::string(value.string_value, value.value_size);
    case PJRT_NamedValue_kInt64: return std::to_string(value.int64_value);
    case PJRT_NamedValue_kInt64List: {
      std::string text;
      for (size_t i = 0; i < value.value_size; ++i) {
        text += (i == 0 ? "" : ".") + std::to_string(value.int64_array_value[i]);
      }
      return text;
    }
    case PJRT_NamedValue_kFloat: return std::to_string(value.float_value);
    case PJRT_NamedValue_kBool: return value.bool_value ? "true" : "false";
  }
  return "";  // a kind of a later API
}

}  // namespace tpjrt::pjrt
