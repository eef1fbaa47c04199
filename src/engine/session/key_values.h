// c10d's store, in which the processes of torch.distributed met, as that of a plugin's client.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <exception>
#include <memory>

#include "pjrt/key_values.h"

namespace tpjrt::engine {

// Its keys are under "pjrt/".
//
// Who waits in it, within a plugin, hears Ctrl-C: then the wait ends with an error (kCancelled), which the plugin hands on as its
// own, and rethrow_interrupt() throws what was raised instead.
std::shared_ptr<pjrt::KeyValueStore> key_values_in(c10::intrusive_ptr<c10d::Store> store);
// All waits in it end so, on whatever thread, from now on.
void end_waits(pjrt::KeyValueStore& store);
// What ended a wait of this thread's, if something did and it was not thrown yet. Where a plugin's call has failed.
void rethrow_interrupt();

}  // namespace tpjrt::engine
