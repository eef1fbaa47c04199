// Names of the error codes, the wording of what(), and what is read out of a plugin's messages.
#include "pjrt/api/error.h"

#include <array>
#include <charconv>
#include <utility>

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

// Prefixes the message with function and code. Some builds of XLA repeat the code in it ("INVALID_ARGUMENT: …").
std::string describe(ErrorCode code, const std::string& function, const std::string& message) {
  const std::string prefix = std::string(spelling(code)) + ": ";
  const bool repeated = message.compare(0, prefix.size(), prefix) == 0;
  return function + ": " + (repeated ? "" : prefix) + message;
}

}  // namespace

Error::Error(ErrorCode code, std::string function, const std::string& message)
    : std::runtime_error(describe(code, function, message)), code(code), function(std::move(function)) {}

bool Error::is_out_of_memory() const {
  const std::string_view words = what();
  return code == ErrorCode::kResourceExhausted || words.find("RESOURCE_EXHAUSTED") != words.npos ||
         words.find("Out of memory") != words.npos;
}

// Parses "Out of memory allocating 1024 bytes" (XLA:CPU) and "Out of memory while trying to allocate 1024 bytes"
// (XLA:GPU).
std::optional<size_t> Error::bytes_lacking() const {
  const std::string_view words = what();
  const size_t digits = words.find_first_of("0123456789", words.find("allocat"));
  if (words.find("allocat") == words.npos || digits == words.npos) return std::nullopt;
  size_t bytes = 0;
  const auto [end, error] = std::from_chars(words.data() + digits, words.data() + words.size(), bytes);
  if (error != std::errc() || !std::string_view(end).starts_with(" byte")) return std::nullopt;
  return bytes;
}

}  // namespace tpjrt::pjrt
