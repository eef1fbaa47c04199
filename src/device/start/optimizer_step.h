// A step of an optimizer: what it begins with, and which calls are its own.
#pragma once

#include "graph/node.h"

namespace tpjrt::device {

// `makes_state`: it is the first one, and zeros that this thread makes are the optimizer's state. PyTorch doesn't tell of a
// step that raises: it ends with the next one, and until then numbers may be inputs that would have been constants.
void begin_optimizer_step(bool makes_state);
void end_optimizer_step();
// Is a first step under way in this thread?
bool makes_optimizer_state();
// Was the call recorded since the step began that is under way?
bool in_optimizer_step(const graph::Node& node);

}  // namespace tpjrt::device
