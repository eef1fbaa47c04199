// Handlers of XLA's typed FFI: functions of other libraries that programs call, through PJRT's FFI extension.
//
// The plugin calls a handler on its own threads. An error that it returns or throws becomes the error of the run,
// prefixed with the places of the call. Thread-safe.
#pragma once

#include <xla/ffi/api/c_api.h>

#include <map>
#include <string>

#include "pjrt/client.h"

namespace tpjrt::pjrt {

struct FfiVersion {
  int major = 0, minor = 0;
};

// Returns the interface version that the handler was compiled for; 0.0 if it doesn't report one. Calls the handler.
FfiVersion version_of(XLA_FFI_Handler* handler);

// Allows programs of this client's plugin to call `target`. Registering the same handler again under a name does
// nothing; another one is an Error. Throws Error also if the plugin has no such extension or rejects the handler, which
// leaves the name free. A handler that a plugin has accepted stays registered.
void register_handler(Client& client, const std::string& target, XLA_FFI_Handler* handler);
// Registers several handlers compiled for one version: the plugin is asked only once whether it supports that.
void register_handlers(Client& client, const std::map<std::string, XLA_FFI_Handler*>& handlers);

// Returns the handler registered under this name, or null.
XLA_FFI_Handler* handler_of(const std::string& target);

// Adds a readable description of a place that calls the target. Its errors begin with these.
void add_place(const std::string& target, const std::string& place);

}  // namespace tpjrt::pjrt
