// Attribute values in MLIR syntax.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hlo/type.h"

namespace tpjrt::hlo {

std::string attribute(bool value);              // "true"
std::string attribute(int64_t value);           // "1 : i64"
std::string attribute(double value);            // "1.0e-05 : f64"; nan and infinities as bits
std::string attribute(std::string_view value);  // a string literal
inline std::string attribute(const char* value) { return attribute(std::string_view(value)); }
std::string attribute(const Dims& values);  // "array<i64: 1, 2>"
std::string attribute(const std::vector<bool>& values);
std::string attribute(const std::vector<double>& values);
std::string attribute(const std::vector<std::string>& values);  // ["a", "b"]
// Appends values to a list of strings in MLIR syntax.
std::string longer(const std::string& list, const std::vector<std::string>& values);

}  // namespace tpjrt::hlo
