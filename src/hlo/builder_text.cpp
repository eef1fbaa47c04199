// Splits a block into its statements.
#include "hlo/builder_text.h"

#include <algorithm>

namespace tpjrt::hlo {

std::vector<std::string_view> statements(std::string_view text, size_t indent) {
  std::vector<std::string_view> result;
  size_t begin = 0;
  for (size_t line = 0; line < text.size();) {
    const size_t end = std::min(text.find('\n', line), text.size() - 1) + 1;
    const bool begins = text[line + indent] != ' ' && text[line + indent] != '}' && text[line + indent] != '^';
    if (begins && line > begin) {
      result.push_back(text.substr(begin, line - begin));
      begin = line;
    }
    line = end;
  }
  if (begin < text.size()) result.push_back(text.substr(begin));
  return result;
}

std::string_view defined_name(std::string_view statement) {
  const size_t at = statement.find_first_not_of(' ');
  if (at == statement.npos || statement[at] != '%') return {};
  size_t end = at + 1;
  while (end < statement.size() && is_of_name(statement[end])) ++end;
  return statement.substr(at, end - at);
}

}  // namespace tpjrt::hlo
