// Errors of the PJRT C API: names of the codes and the wording of what().
#include "pjrt/error.h"

#include <array>

namespace tpjrt::pjrt {

std::string_view spelling(ErrorCode code) {
  static constexpr std::array<std::string_view, 17> kNames = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < kNames.size() ? kNames[index] : "UNKNOWN";
}

namespace {

// XLA's messages repeat the code ("INVALID_ARGUMENT: …") in some builds and not in others.
std::string describe(ErrorCode code, const std::string& function, const std::string& message) {
  const std::string prefix = std::string(spelling(code)) + ": ";
  const bool repeated = message.compare(0, prefix.size(), prefix) == 0;
  return function + ": " + (repeated ? "" : prefix) + message;
}

}  // namespace

Error::Error(ErrorCode code, std::string function, const std::string& message)
    : std::runtime_error(describe(code, function, message)), code(code), function(std::move(function)) {}

}  // namespace tpjrt::pjrt
