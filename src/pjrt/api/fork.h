// Processes that were forked from one with a client.
//
// A forked child has none of a plugin's threads, and the plugin's locks may be held forever. So nothing of the plugin
// may be called there; Api::call enforces this for all calls. A process that is forked before a client exists may
// create its own.
#pragma once

namespace tpjrt::pjrt {

// Returns true in a child that was forked after watch_forks(). Costs one load.
bool in_forked_child() noexcept;
// From now on forked children are detected. Called before the first client is created; further calls do nothing.
void watch_forks();
// The error message for a call in a forked child, with the cure.
extern const char* const kForked;

}  // namespace tpjrt::pjrt
