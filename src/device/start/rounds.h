// Rounds of a loop: what a round recorded, and nothing has run, is started when it ends.
//
// Note [Rounds]: An evaluation moves a batch to the device, counts what is right, and reads the count when all batches
// are through; a training step is run by its optimizer, but not the moving average of the parameters beside it; lazily
// each would be one graph of all rounds, which holds all batches and all versions of the parameters, and takes long to
// compile. So a round ends
//   - with an optimizer's step, and where data is moved to the device, or data that is there is read, at a place in the
//     program where that was done before. If what was recorded since then and is still pending is much, it is
//     started: each round is one program, the same one, and runs while the next is recorded. Little (a running sum of
//     losses) stays pending. What a module moves or reads while it computes ends no round (a mask that each layer makes), nor
//     does what a backward recomputes;
//   - where a program steps without an optimizer (`p -= lr * p.grad`), with a call of backward() that comes again. What
//     is pending is started there if it is large, and was begun before the call came last.
// Only the main thread's rounds count: another thread's (a prefetcher's, a trainer's beside) would end in the midst of them.
#pragma once

#include <cstddef>

#include "graph/node.h"

namespace tpjrt::device {

// A place in a Python program.
struct Place {
  const void* code = nullptr;  // of the user's frame (see location.h); none where no Python is running
  int line = 0;
  bool in_module = false;  // an nn.Module is being called
};
using PlaceSource = Place (*)();
void install_place_source(PlaceSource source);

void end_round_before_copy(size_t nbytes);            // of the host's, to the device
void end_round_before_read(const graph::Cell& cell);  // of a tensor
void end_round_after_step();                          // of an optimizer, which has been started
void end_round_before_backward();

}  // namespace tpjrt::device
