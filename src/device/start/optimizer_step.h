// A step of an optimizer: when it begins, and which calls belong to it.
#pragma once

#include "graph/node.h"

namespace tpjrt::device {

// `makes_state`: it is the first step, and zeros that this thread makes are the optimizer's state. PyTorch doesn't
// report a step that raises, so that step lasts until the next one; meanwhile numbers may be inputs that would have
// been constants.
void begin_optimizer_step(bool makes_state);
void end_optimizer_step();
// Returns whether a first step runs in this thread.
bool makes_optimizer_state();
// Returns whether the call was recorded since the current step began.
bool in_optimizer_step(const graph::Node& node);

}  // namespace tpjrt::device
