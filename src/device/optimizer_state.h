// What an optimizer's state begins with.
#pragma once

namespace tpjrt::device {

// From here on this thread's first step of an optimizer makes its state, or no longer does.
void set_state_begins(bool begins);

}  // namespace tpjrt::device
