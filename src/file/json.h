// JSON (RFC 8259), read and written. Text that isn't JSON, is nested deeper than kDeepest or has a key twice is an
// Error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "file/mapping.h"

namespace tpjrt::file {

class Json {
 public:
  static constexpr int kDeepest = 64;
  using List = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in the text's order

  Json() = default;  // null
  template <class T>
    requires std::is_same_v<T, bool> || std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
             std::is_same_v<T, std::string> || std::is_same_v<T, List> || std::is_same_v<T, Object>
  explicit Json(T value) : value_(std::in_place_type<T>, std::move(value)) {}

  static Json parse(std::string_view text);
  std::string text() const;

  // An integer that fits into no int64_t is a double.
  const auto& value() const { return value_; }
  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }

  // Return the value, or throw an Error that begins with `what` if it has another type.
  bool boolean(std::string_view what) const;
  int64_t integer(std::string_view what) const;
  const std::string& string(std::string_view what) const;
  const List& list(std::string_view what) const;
  const Object& object(std::string_view what) const;

  // Returns an object's value; null if there is no such key, or this is not an object.
  const Json* find(std::string_view key) const;
  // Returns an object's value, or throws an Error if it is missing.
  const Json& at(std::string_view key) const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, List, Object> value_;
};

// Returns a string as JSON, with its quotes.
std::string quoted(std::string_view text);

}  // namespace tpjrt::file
