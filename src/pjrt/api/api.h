// The only access to a PJRT plugin's function table.
//
// Every call of the C API goes through Api::call, by TPJRT_CALL, which does what the C API demands of each call. A
// function exists only if the table is long enough to contain it and its entry is not null. A returned PJRT_Error is
// read, freed and thrown as pjrt::Error. Nothing is called in a forked child (api.h). An Api is immutable and is never
// unloaded, because plugins start threads and register globals. Thread-safe.
//
// Errors of the PJRT C API, as C++ exceptions.
//
// There are two kinds, because their cures differ. Error is a call that the plugin rejected or a computation that
// failed. PluginError is a plugin that can't be used at all; its message says how to fix that.
//
// Processes that were forked from one with a client.
//
// A forked child has none of a plugin's threads, and the plugin's locks may be held forever. So nothing of the plugin
// may be called there; Api::call enforces this for all calls. A process that is forked before a client exists may
// create its own.
#pragma once

#include <pjrt_c_api.h>

#include <cstddef>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tpjrt::pjrt {

// PJRT_Error_Code, which is absl::StatusCode and documented there.
enum class ErrorCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// Returns "INVALID_ARGUMENT" and the like; "UNKNOWN" for codes of a later API.
std::string_view spelling(ErrorCode code);

// A failed PJRT call. what() is "PJRT_Client_Compile: INVALID_ARGUMENT: <the plugin's message>".
struct Error : std::runtime_error {
  Error(ErrorCode code, std::string function, const std::string& message);
  ErrorCode code;
  std::string function;  // the C API function, such as "PJRT_Client_Compile"

  // Returns true if memory ran out. Plugins say so by the code or, if another error wraps it, only in the message.
  bool is_out_of_memory() const;
  // Returns the size of the failed allocation, if the message has it.
  std::optional<size_t> bytes_lacking() const;
};

// A plugin can't be loaded: no file, not a shared library, not a plugin, too old. Names the path and the cure.
struct PluginError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Returns true in such a child. Costs one load.
bool in_forked_child() noexcept;
// From now on forked children are detected. Called before the first client is created; further calls do nothing.
void watch_forks();
// The error message for such a process, with the cure.
extern const char* const kForked;

}  // namespace tpjrt::pjrt

// Declares `args`, zeroed, with its struct_size: TPJRT_ARGS(PJRT_Buffer_Device, args); args.buffer = …;
#define TPJRT_ARGS(Function, args) \
  Function##_Args args{};          \
  args.struct_size = Function##_Args_STRUCT_SIZE
// Calls the function: TPJRT_CALL(api, PJRT_Buffer_Device, args);
#define TPJRT_CALL(api, Function, args) (api).call(#Function, &PJRT_Api::Function, args)

namespace tpjrt::pjrt {

class Api {
 public:
  // Loads and initializes the plugin at `path`, once for each file. Throws PluginError.
  static const Api& load(const std::string& path);

  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  // Returns an address in the plugin's library.
  const void* address() const { return table_; }

  int major() const { return table_->pjrt_api_version.major_version; }
  int minor() const { return table_->pjrt_api_version.minor_version; }
  // The path with which the file was first loaded.
  const std::string& path() const { return path_; }
  // The plugin's attributes, such as "xla_version" -> "2" and "stablehlo_current_version" -> "1.13.3". May be empty.
  const std::map<std::string, std::string>& attributes() const { return attributes_; }

  // Returns true if the function is in the plugin's table. Example: has(&PJRT_Api::PJRT_Buffer_CopyRawToHost).
  template <class Function>
  bool has(Function PJRT_Api::* member) const {
    const auto* field = reinterpret_cast<const char*>(&(table_->*member));
    return field + sizeof(Function) <= reinterpret_cast<const char*>(table_) + table_->struct_size &&
           table_->*member != nullptr;
  }

  // Calls the function. Throws Error: with kUnimplemented if the plugin lacks the function, with the plugin's code and
  // message if the call fails. TPJRT_CALL writes the first two arguments.
  template <class Args>
  void call(const char* name, PJRT_Error* (*PJRT_Api::*member)(Args*), Args& args) const {
    if (in_forked_child()) throw Error(ErrorCode::kFailedPrecondition, name, kForked);
    if (!has(member)) throw_missing(name);
    if (PJRT_Error* error = (table_->*member)(&args)) throw_error(name, error);
  }

  // Calls a function of an extension likewise.
  template <class Args>
  void call_extension(const char* name, PJRT_Error* (*function)(Args*), Args& args) const {
    if (in_forked_child()) throw Error(ErrorCode::kFailedPrecondition, name, kForked);
    if (PJRT_Error* error = function(&args)) throw_error(name, error);
  }

  // Calls the function from destructors and callbacks: errors and missing functions are ignored. In a forked child the
  // object is leaked.
  template <class Args>
  void call_noexcept(PJRT_Error* (*PJRT_Api::*member)(Args*), Args& args) const noexcept {
    if (in_forked_child() || !has(member)) return;
    if (PJRT_Error* error = (table_->*member)(&args)) destroy(error);
  }

  // Frees `error` and throws its code and message. `name`: the function that returned it.
  [[noreturn]] void throw_error(const char* name, PJRT_Error* error) const;
  void destroy(PJRT_Error* error) const noexcept;

  // Returns the extension of that type, or null. Its struct begins with a PJRT_Extension_Base, and a field exists only
  // within its struct_size. Values of PJRT_Extension_Type are stable, so `type` may be newer than our header.
  const PJRT_Extension_Base* extension(int type) const;

 private:
  Api(std::string path, const PJRT_Api* table);
  [[noreturn]] void throw_missing(const char* name) const;

  std::string path_;
  const PJRT_Api* table_;
  std::map<std::string, std::string> attributes_;
};

// Formats a named value: integers in decimal, lists joined by dots ("1.13.3"), booleans as "true" or "false".
std::string to_string(const PJRT_NamedValue& value);

}  // namespace tpjrt::pjrt
