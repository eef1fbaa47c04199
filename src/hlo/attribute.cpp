// Attribute values in MLIR syntax (hlo/type.h).
#include "hlo/builder_text.h"
#include "hlo/type.h"

namespace tpjrt::hlo {

std::string attribute(bool value) { return value ? "true" : "false"; }
std::string attribute(int64_t value) { return cat(value, " : i64"); }
std::string attribute(double value) { return float_text(value, ElementType::kF64) + " : f64"; }
std::string attribute(std::string_view value) { return quoted(value); }
std::string attribute(const Dims& values) { return array(values); }
std::string attribute(const std::vector<bool>& values) { return array(values); }

std::string attribute(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? ": " : ", ") + float_text(value, ElementType::kF64);
  return "array<f64" + text + ">";
}

std::string attribute(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ", ") + quoted(value);
  return "[" + text + "]";
}
std::string longer(const std::string& list, const std::vector<std::string>& values) {
  return list.substr(0, list.size() - 1) + ", " + attribute(values).substr(1);
}

}  // namespace tpjrt::hlo
