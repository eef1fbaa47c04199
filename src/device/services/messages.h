// Log lines that warn the user while a condition lasts.
#pragma once

#include <string>

namespace tpjrt::device {

// Logs to the logger of that name at level WARNING, or to stderr if the program has set up no logging. Takes the GIL.
// Installed by the Python room.
using MessageSink = void (*)(const char* logger, const std::string& line);
void install_message_sink(MessageSink sink);
void inform(const char* logger, const std::string& line);

}  // namespace tpjrt::device
