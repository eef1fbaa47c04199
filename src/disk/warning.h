// How this room warns: what is wrong with the folder or an entry never ends a run.
#pragma once

#include <sstream>
#include <string>

namespace tpjrt::disk {

// Who tells the user. Without one, the standard error stream gets the message. May be called from any thread.
using Warning = void (*)(const std::string& message);
void install_warning(Warning warning);
void warn_of(const std::string& message);

void warn(const auto&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  warn_of(text.str());
}

}  // namespace tpjrt::disk
