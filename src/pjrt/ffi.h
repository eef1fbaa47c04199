// Handlers of XLA's typed FFI: functions of other libraries that a program calls, by way of PJRT's FFI extension.
//
// A handler is called by the plugin, in its threads. What it returns or throws becomes the error of the run, with what
// the handler was called for before it. May be used from any thread.
#pragma once

#include <xla/ffi/api/c_api.h>

#include <map>
#include <string>

#include "pjrt/client.h"

namespace tpjrt::pjrt {

struct FfiVersion {
  int major = 0, minor = 0;
};

// The version of the interface that the handler was compiled for; 0.0 where it doesn't tell. Calls it.
FfiVersion version_of(XLA_FFI_Handler* handler);

// From now on programs of this client's plugin may call `target`. The same handler may be registered under a name any
// number of times; another one is an Error. Throws Error, too, where the plugin has no such extension or refuses the
// handler, which leaves the name free. A handler that a plugin has is never forgotten.
void register_handler(Client& client, const std::string& target, XLA_FFI_Handler* handler);
// The same of several, which were compiled for one version: the plugin is asked once whether it takes that.
void register_handlers(Client& client, const std::map<std::string, XLA_FFI_Handler*>& handlers);

// What is registered under this name; null where nothing is.
XLA_FFI_Handler* handler_of(const std::string& target);

// One more place that the target is called from, in words: what its errors begin with.
void add_place(const std::string& target, const std::string& place);

}  // namespace tpjrt::pjrt
