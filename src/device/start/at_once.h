// Calls that somebody is about to read, run while they are recorded.
//
// Note [At once]: a line search, an agent or a sampler reads a number every few calls. What a graph brings, its calls can't pay
// there: a node, a walk and a look-up a read cost more than the kernels. So a stretch, all that a thread records from one read
// to the next, is foretold by its first call. Where the last kLeastReads stretches that began with the same call were of
// no more than kMostCalls, this one's calls run at once, each by the kernel that would run it later (Note [Tiers]), if their
// operands are there and all is small; others are recorded, as ever. A stretch that becomes longer is recorded from there on,
// and the next ones that begin so. It depends on what is called and read alone, so a script takes the same way each time. Calls
// on a view whose storage's value is in memory see that memory, and write into it where nobody else has the old value.
#pragma once

#include <cstdint>

#include "graph/signature.h"

namespace tpjrt::device {

// Tells of a call of this thread, whose signature lives as long as the process. Should it run at once? Under graph_lock().
bool call_of_stretch(graph::SignaturePtr signature);
// May this thread's calls run at once? Not those of a trace, nor where somebody is asked before a write.
bool may_run_at_once();
// It did.
void ran_at_once();
// A value is read: the stretch ends. Gives how many of its calls have run at once. Under graph_lock().
uint32_t end_stretch();
// A policy is set anew: stretches are counted from there on, and this thread's begins anew.
void forget_stretches();

}  // namespace tpjrt::device
