// The FFI extension, and wrappers around handlers.
#include "pjrt/ffi.h"

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace tpjrt::pjrt {
namespace {

// Declarations of PJRT's pjrt_c_api_ffi_extension.h, which is missing from xla-cpu-pjrt's wheel.
constexpr int kFfiExtension = 5;  // PJRT_Extension_Type_FFI
constexpr const char* kName = "PJRT_FFI_Register_Handler";
struct RegisterArgs {
  size_t struct_size = offsetof(RegisterArgs, traits) + sizeof(int);
  const char* target = nullptr;
  size_t target_size = 0;
  void* handler = nullptr;
  const char* platform = nullptr;
  size_t platform_size = 0;
  int traits = 0;
};
struct FfiExtension {
  PJRT_Extension_Base base;
  void* register_type;
  void* add_user_data;
  PJRT_Error* (*register_handler)(RegisterArgs*);
};

// A registered target. Lives as long as the process.
struct Target {
  XLA_FFI_Handler* handler = nullptr;  // null: no plugin has accepted one
  std::vector<std::string> places;
  std::set<const Api*> registered;  // plugins, which share handlers among all their clients
};

std::mutex& lock() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

// Held while a plugin is called. The plugin calls the handler, which takes the other lock.
std::mutex& registering() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

std::map<std::string, Target>& targets() {
  static auto* all = new std::map<std::string, Target>;
  return *all;
}

std::string words(const Target& target) {
  constexpr size_t kMost = 4;
  std::lock_guard guard(lock());
  std::string text;
  for (size_t i = 0; i < target.places.size() && i < kMost; ++i) text += (i ? ", or " : "") + target.places[i];
  if (target.places.size() > kMost) text += ", or elsewhere";
  return text;
}

XLA_FFI_Error* error_of(const XLA_FFI_Api* api, const std::string& message) {
  XLA_FFI_Error_Create_Args args{};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = message.c_str();
  args.errc = XLA_FFI_Error_Code_INTERNAL;
  return api->XLA_FFI_Error_Create(&args);
}

std::string taken_message(const XLA_FFI_Api* api, XLA_FFI_Error* error) {
  XLA_FFI_Error_GetMessage_Args args{};
  args.struct_size = XLA_FFI_Error_GetMessage_Args_STRUCT_SIZE;
  args.error = error;
  api->XLA_FFI_Error_GetMessage(&args);
  std::string message = args.message ? args.message : "";
  XLA_FFI_Error_Destroy_Args destroyed{};
  destroyed.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  destroyed.error = error;
  api->XLA_FFI_Error_Destroy(&destroyed);
  return message;
}

bool asks_for_metadata(const XLA_FFI_CallFrame* frame) {
  return frame->extension_start != nullptr && frame->extension_start->type == XLA_FFI_Extension_Metadata;
}

XLA_FFI_Error* run(const Target& target, XLA_FFI_CallFrame* frame) {
  if (asks_for_metadata(frame)) return target.handler(frame);
  try {
    XLA_FFI_Error* error = target.handler(frame);
    if (error == nullptr) return nullptr;
    return error_of(frame->api, words(target) + ": " + taken_message(frame->api, error));
  } catch (const std::exception& error) {
    return error_of(frame->api, words(target) + ": " + error.what());
  } catch (...) {
    return error_of(frame->api, words(target) + ": it threw what is no std::exception");
  }
}

// Plugins identify a handler only by its address, so each target needs a function of its own.
constexpr size_t kFunctions = 256;
std::array<const Target*, kFunctions> called{};
template <size_t kIndex>
XLA_FFI_Error* function(XLA_FFI_CallFrame* frame) {
  return run(*called[kIndex], frame);
}
template <size_t... kIndices>
constexpr std::array<XLA_FFI_Handler*, kFunctions> functions(std::index_sequence<kIndices...> /*indices*/) {
  return {&function<kIndices>...};
}

// Returns a wrapper. Call it under the lock. When all functions are used, returns the handler itself, whose errors
// don't name the caller.
XLA_FFI_Handler* around(const Target& target) {
  static constexpr auto kAll = functions(std::make_index_sequence<kFunctions>{});
  for (size_t i = 0; i < kFunctions; ++i) {
    if (called[i] == nullptr) called[i] = &target;
    if (called[i] == &target) return kAll[i];
  }
  return target.handler;
}

// Throws if the plugin doesn't know the target: it may silently reject a handler for its version. Tries it with a
// program.
void refuse_unknown(Client& client, const std::string& target) {
  const std::string text = "module { func.func public @main() -> tensor<f32> { %0 = stablehlo.custom_call @\"" +
                           target + "\"() {api_version = 4 : i32} : () -> tensor<f32> return %0 : tensor<f32> } }";
  try {
    (void)client.compile(text);
  } catch (const Error& error) {
    if (error.code != ErrorCode::kNotFound) return;
    throw Error(ErrorCode::kFailedPrecondition, kName,
                "the plugin takes no handlers for that version of XLA's FFI (" + std::string(error.what()) + ")");
  }
}

// Returns XLA's own name of a platform.
std::string spelled(const std::string& platform) {
  if (platform == "cpu") return "Host";
  std::string name;
  for (const char c : platform) name += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

}  // namespace

FfiVersion version_of(XLA_FFI_Handler* handler) {
  XLA_FFI_Metadata metadata{};
  metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  metadata.api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
  XLA_FFI_Metadata_Extension extension{};
  extension.extension_base.struct_size = XLA_FFI_Metadata_Extension_STRUCT_SIZE;
  extension.extension_base.type = XLA_FFI_Extension_Metadata;
  extension.metadata = &metadata;
  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.extension_start = &extension.extension_base;
  if (handler(&frame) != nullptr) return {};
  return {metadata.api_version.major_version, metadata.api_version.minor_version};
}

void register_handler(Client& client, const std::string& target, XLA_FFI_Handler* handler) {
  register_handlers(client, {{target, handler}});
}

void register_handlers(Client& client, const std::map<std::string, XLA_FFI_Handler*>& handlers) {
  const auto* extension = reinterpret_cast<const FfiExtension*>(client.api().extension(kFfiExtension));
  if (extension == nullptr || extension->base.struct_size < sizeof(FfiExtension) || !extension->register_handler) {
    throw Error(ErrorCode::kUnimplemented, kName, "the plugin '" + client.api().path() + "' has no FFI extension");
  }
  std::lock_guard guard(registering());
  std::map<std::string, XLA_FFI_Handler*> around_each;  // the targets that are new to the plugin
  for (const auto& [target, handler] : handlers) {
    std::lock_guard known_guard(lock());
    Target& known = targets()[target];
    if (known.handler != nullptr && known.handler != handler) {
      throw Error(ErrorCode::kAlreadyExists, kName, "'" + target + "' is another handler");
    }
    if (known.registered.contains(&client.api())) continue;
    known.handler = handler;
    around_each[target] = around(known);
  }
  if (around_each.empty()) return;
  // A handler that no plugin accepts leaves its name free.
  const auto end = [&around_each](const Api* taken) {
    std::lock_guard known_guard(lock());
    for (const auto& [target, handler] : around_each) {
      Target& known = targets()[target];
      if (taken != nullptr) known.registered.insert(taken);
      if (known.registered.empty()) known.handler = nullptr;
    }
  };
  const std::string platform = spelled(client.platform_name());
  try {
    for (const auto& [target, handler] : around_each) {
      RegisterArgs args;
      args.target = target.data();
      args.target_size = target.size();
      args.handler = reinterpret_cast<void*>(handler);
      args.platform = platform.data();
      args.platform_size = platform.size();
      client.api().call_extension(kName, extension->register_handler, args);
    }
    refuse_unknown(client, around_each.begin()->first);
  } catch (...) {
    end(nullptr);
    throw;
  }
  end(&client.api());
}

XLA_FFI_Handler* handler_of(const std::string& target) {
  std::lock_guard guard(lock());
  const auto known = targets().find(target);
  return known == targets().end() ? nullptr : known->second.handler;
}

void add_place(const std::string& target, const std::string& place) {
  std::lock_guard guard(lock());
  std::vector<std::string>& places = targets()[target].places;
  for (const std::string& known : places) {
    if (known == place) return;
  }
  places.push_back(place);
}

}  // namespace tpjrt::pjrt
