// Runs calls while they are recorded, if a read is expected soon.
//
// Note [Eager fast path]: a line search, an agent or a sampler reads a number every few calls. A graph doesn't amortize
// there: a node, a walk and a look-up for each read cost more than the kernels. So the first call of an interval, which
// is all that a thread records from one read to the next, predicts its length. If the last kLeastReads intervals that
// began with the same call had no more than kMostCalls calls, this one's calls run immediately, each by the kernel
// that would run it later (Note [Tiers]), if their operands exist and all are small; others are recorded as usual. An
// interval that becomes longer is recorded from there on, and so are the next ones that begin that way. The decision
// depends on calls and reads alone, so a script behaves the same each time. Calls on a view whose storage's value is
// in memory see that memory, and write into it if nothing else has the old value.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <mutex>

#include "graph/signature.h"

namespace tpjrt::device {

// Returns whether the next call is an interval's first, whose signature counts. Under graph_lock(), as the next.
bool begins_interval();
// Records that this thread is about to call `signature`, which lives as long as the process and may be null unless the
// call is an interval's first. Returns true if the call should run immediately.
bool begin_call(graph::SignaturePtr signature);
// Returns whether this thread's calls may run immediately: not in eager mode or a trace, or if writes are watched.
bool may_run_eagerly();
// Calls `run`, which asks the engine to run a call and returns whether it ran, and counts it. `lock` is graph_lock()'s
// and is released only for `run`, because values have to be released under it.
bool run_unlocked(std::unique_lock<std::mutex>& lock, c10::function_ref<bool()> run);
// Ends the interval, because a value is read. Returns how many of its calls have run immediately. Under graph_lock().
uint32_t end_interval();
// Restarts the counts of intervals, because a policy was set, and begins a new interval in this thread.
void forget_intervals();

}  // namespace tpjrt::device
