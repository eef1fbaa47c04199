// The user's line: the innermost Python frame that belongs neither to torch nor to this package. Installed by the
// Python room.
#pragma once

#include <string>

namespace tpjrt::device {

struct Location {
  std::string file;
  int line = 0;
};
using LocationSource = Location (*)();

void install_location_source(LocationSource source);
// Overrides the location in this thread, until it is set to the empty location. For traced code.
void set_location(Location location);
// Returns an empty location if no Python frame is running (the autograd engine's thread). Takes the GIL.
Location user_location();

}  // namespace tpjrt::device
