// What goes wrong at the PJRT C API, as C++ exceptions.
//
// Two kinds, because their cures differ: Error is a call that the plugin refused or a computation that failed;
// PluginError is a plugin that can't be used at all, and its message says what to do about it.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tpjrt::pjrt {

// PJRT_Error_Code, which is absl::StatusCode: what each means is told there.
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

// "INVALID_ARGUMENT"; "UNKNOWN" for codes of a later API.
std::string_view spelling(ErrorCode code);

// A PJRT call failed. what() is "PJRT_Client_Compile: INVALID_ARGUMENT: <the plugin's message>".
struct Error : std::runtime_error {
  Error(ErrorCode code, std::string function, const std::string& message);
  ErrorCode code;
  std::string function;  // the C API function, for example "PJRT_Client_Compile"

  // Is it for want of memory? Plugins say so by the code, or, where another error comes between, by the words alone.
  bool is_out_of_memory() const;
  // Bytes that could not be allocated, if the words tell.
  std::optional<size_t> bytes_lacking() const;
};

// A plugin can't be loaded: no file, not a shared library, not a plugin, too old. Names the path and the cure.
struct PluginError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace tpjrt::pjrt
