// Lines that warn the user while something lasts.
#pragma once

#include <string>

namespace tpjrt::device {

// To the logger of that name, at level WARNING; to stderr where the program has set up no logging. Takes the GIL. Installed by the
// Python room.
using Teller = void (*)(const char* logger, const std::string& line);
void install_teller(Teller teller);
void tell(const char* logger, const std::string& line);

}  // namespace tpjrt::device
