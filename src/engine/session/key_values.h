// A plugin client's key-value store over c10d's store, in which the processes of torch.distributed met.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <exception>
#include <memory>

#include "pjrt/key_values.h"

namespace tpjrt::engine {

// Returns the store, with keys under "pjrt/".
//
// A wait in it, inside a plugin, reacts to Ctrl-C: it ends with an error (kCancelled), which the plugin passes on as
// its own. rethrow_interrupt() then throws the original exception.
std::shared_ptr<pjrt::KeyValueStore> key_values_in(c10::intrusive_ptr<c10d::Store> store);
// Ends all current and future waits in the store, on every thread, with kCancelled.
void end_waits(pjrt::KeyValueStore& store);
// Throws the exception that ended a wait of this thread, unless it was thrown before. Call it when a plugin's call has
// failed.
void rethrow_interrupt();

}  // namespace tpjrt::engine
