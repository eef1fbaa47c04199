// Warnings of this room: a problem with the folder or an entry never ends a run.
#pragma once

#include <sstream>
#include <string>

namespace tpjrt::disk {

// Reports warnings to the user. By default they go to standard error. May be called from any thread.
using Warning = void (*)(const std::string& message);
void install_warning(Warning warning);
void warn_of(const std::string& message);

void warn(const auto&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  warn_of(text.str());
}

}  // namespace tpjrt::disk
