// The user's line: the innermost Python frame that is neither torch's nor ours. Installed by the Python room.
#pragma once

#include <string>

namespace tpjrt::device {

struct Location {
  std::string file;
  int line = 0;
};
using LocationSource = Location (*)();

void install_location_source(LocationSource source);
// In this thread, until it is set to the empty location: what is traced comes from there.
void set_location(Location location);
// Empty where no Python frame is running (the autograd engine's thread). Takes the GIL.
Location user_location();

}  // namespace tpjrt::device
