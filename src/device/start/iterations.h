// Iterations of a loop: work that an iteration recorded, and that nothing has run, is started when it ends.
//
// Note [Loop iterations]: an evaluation moves batches to the device, counts correct answers, and reads the count after
// all batches. A training step is run by its optimizer, but the moving average of the parameters beside it is not.
// Recorded lazily, each would be one graph of all iterations, which holds all batches and all versions of the
// parameters, and takes long to compile. Therefore an iteration ends with an optimizer's step, and where data is moved
// to the device, or existing data is read, at a place in the program where that was done before. If the work recorded
// since then and still pending is large, it is started: each iteration is one program, the same one, and runs while the
// next is recorded. Little work (a running sum of losses) stays pending. A module's copies and reads while it computes
// end no iteration (a mask that each layer makes), nor do those that a backward recomputes.
// Only the main thread's iterations count: those of another thread (a prefetcher, a second trainer) would end in the
// middle of them.
#pragma once

#include <cstddef>

#include "graph/node.h"

namespace tpjrt::device {

// A place in a Python program.
struct Place {
  const void* code = nullptr;  // the user's frame (see location.h); null if no Python is running
  int line = 0;
  bool in_module = false;  // an nn.Module is being called
};
using PlaceSource = Place (*)();
void install_place_source(PlaceSource source);

void end_iteration_before_copy(size_t nbytes);                   // from the host to the device
void end_iteration_before_read(const graph::StorageSlot& slot);  // of a tensor
void end_iteration_after_step();                                 // of an optimizer, whose work has been started

}  // namespace tpjrt::device
