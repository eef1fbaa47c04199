// The only access to a PJRT plugin's function table.
#pragma once

#include <pjrt_c_api.h>

#include <cstddef>
#include <map>
#include <string>

#include "pjrt/api/error.h"
#include "pjrt/api/fork.h"

// Declares `args`, zeroed, with its struct_size: TPJRT_ARGS(PJRT_Buffer_Device, args); args.buffer = …;
#define TPJRT_ARGS(Function, args) \
  Function##_Args args{};          \
  args.struct_size = Function##_Args_STRUCT_SIZE
// Calls the function: TPJRT_CALL(api, PJRT_Buffer_Device, args);
#define TPJRT_CALL(api, Function, args) (api).call(#Function, &PJRT_Api::Function, args)

namespace tpjrt::pjrt {

// A plugin's function table. Every call of the C API goes through Api::call, by TPJRT_CALL, which does what the C API
// demands of each call. A function exists only if the table is long enough to contain it and its entry is not null. A
// returned PJRT_Error is read, freed and thrown as pjrt::Error. Nothing is called in a forked child. An Api is
// immutable and is never unloaded, because plugins start threads and register globals. Thread-safe.
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
