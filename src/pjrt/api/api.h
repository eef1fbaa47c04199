// The one funnel to a PJRT plugin's function table.
//
// Every call of the C API goes through Api::call, by way of TPJRT_CALL, which holds for all of them what the C API asks
// of each: a function exists only where the table is long enough to hold it and the entry is not null, and a returned
// PJRT_Error is read, freed and thrown as pjrt::Error; and nothing is called in a forked child (fork.h). An Api is immutable and lives as long as the process: plugins
// start threads and register globals, so none is ever unloaded. All of it may be used from any thread.
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
// Calls the function through the funnel: TPJRT_CALL(api, PJRT_Buffer_Device, args);
#define TPJRT_CALL(api, Function, args) (api).call(#Function, &PJRT_Api::Function, args)

namespace tpjrt::pjrt {

class Api {
 public:
  // Loads and initializes the plugin at `path`, once for each file. Throws PluginError.
  static const Api& load(const std::string& path);

  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  int major() const { return table_->pjrt_api_version.major_version; }
  int minor() const { return table_->pjrt_api_version.minor_version; }
  // The file as it was asked for when it was first loaded.
  const std::string& path() const { return path_; }
  // What the plugin says about itself, such as "xla_version" -> "2" and "stablehlo_current_version" -> "1.13.3".
  // Empty where it says nothing.
  const std::map<std::string, std::string>& attributes() const { return attributes_; }

  // Is the function in the plugin's table? For example has(&PJRT_Api::PJRT_Buffer_CopyRawToHost).
  template <class Function>
  bool has(Function PJRT_Api::* member) const {
    const auto* field = reinterpret_cast<const char*>(&(table_->*member));
    return field + sizeof(Function) <= reinterpret_cast<const char*>(table_) + table_->struct_size &&
           table_->*member != nullptr;
  }

  // Calls the function. Throws Error: with kUnimplemented where the plugin lacks the function, with the plugin's own
  // code and message where the call fails. TPJRT_CALL writes the first two arguments.
  template <class Args>
  void call(const char* name, PJRT_Error* (*PJRT_Api::*member)(Args*), Args& args) const {
    if (in_forked_child()) throw Error(ErrorCode::kFailedPrecondition, name, kForked);
    if (!has(member)) throw_missing(name);
    if (PJRT_Error* error = (table_->*member)(&args)) throw_error(name, error);
  }

  // The same for a function of an extension.
  template <class Args>
  void call_extension(const char* name, PJRT_Error* (*function)(Args*), Args& args) const {
    if (in_forked_child()) throw Error(ErrorCode::kFailedPrecondition, name, kForked);
    if (PJRT_Error* error = function(&args)) throw_error(name, error);
  }

  // As call, for destructors and callbacks: an error, or a lacking function, is dropped. In a forked child the object
  // stays where it is.
  template <class Args>
  void call_noexcept(PJRT_Error* (*PJRT_Api::*member)(Args*), Args& args) const noexcept {
    if (in_forked_child() || !has(member)) return;
    if (PJRT_Error* error = (table_->*member)(&args)) destroy(error);
  }

  // Frees `error` and throws what it says. `name` is the function that gave it.
  [[noreturn]] void throw_error(const char* name, PJRT_Error* error) const;
  void destroy(PJRT_Error* error) const noexcept;

  // The extension of that type, or null. The struct behind it begins with a PJRT_Extension_Base; a field of it is
  // present only within its struct_size. PJRT_Extension_Type's values are stable, so `type` may be later than our
  // header.
  const PJRT_Extension_Base* extension(int type) const;

 private:
  Api(std::string path, const PJRT_Api* table);
  [[noreturn]] void throw_missing(const char* name) const;

  std::string path_;
  const PJRT_Api* table_;
  std::map<std::string, std::string> attributes_;
};

// A named value as text: integers in decimal, lists joined by dots ("1.13.3"), booleans as "true" or "false".
std::string to_string(const PJRT_NamedValue& value);

}  // namespace tpjrt::pjrt
