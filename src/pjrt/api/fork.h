// Processes that were forked from one that had a client.
//
// A plugin's threads are not in such a process, and its locks may be held for ever: nothing of the plugin may be called
// there. Api::call holds to that for all calls. A process that is forked before there is a client may make its own.
#pragma once

namespace tpjrt::pjrt {

// Is this process such a child? Costs one load.
bool in_forked_child() noexcept;
// From now on children are such. Called before the first client is made; again does nothing.
void watch_forks();
// What is wrong in such a process, and what to do instead.
extern const char* const kForked;

}  // namespace tpjrt::pjrt
