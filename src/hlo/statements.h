// The statements of a block's text, as a Builder writes it.
#pragma once

#include <string_view>
#include <vector>

namespace tpjrt::hlo {

inline bool is_of_name(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Calls `each` with every SSA name in the text, "%0" for "%0#1". Names inside string literals are included.
template <class F>
void each_name(std::string_view text, F&& each) {
  for (size_t at = text.find('%'); at != text.npos; at = text.find('%', at + 1)) {
    size_t end = at + 1;
    while (end < text.size() && is_of_name(text[end])) ++end;
    each(text.substr(at, end - at));
  }
}

// Returns the statements of a block. Lines of their regions are indented deeper, or begin with a closing bracket.
std::vector<std::string_view> statements(std::string_view text, size_t indent);
// Returns "%0" for "%0 = …" and "%0:2 = …"; empty for a return.
std::string_view defined_name(std::string_view statement);

}  // namespace tpjrt::hlo
