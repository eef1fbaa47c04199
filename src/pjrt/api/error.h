// Errors of the PJRT C API, as C++ exceptions.
//
// There are two kinds, because their cures differ. Error is a call that the plugin rejected or a computation that
// failed. PluginError is a plugin that can't be used at all; its message says how to fix that.
#pragma once

#include <cstddef>
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

}  // namespace tpjrt::pjrt
