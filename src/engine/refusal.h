// When XLA refuses a program: finds the op it is about, and tells the user's line.
#pragma once

#include "engine/walk.h"
#include "pjrt/client.h"
#include "pjrt/error.h"

namespace tpjrt::engine {

// Compiles the graph's calls one by one to find the culprit; slow, and only on the way to an exception. The graph is left
// as it is.
[[noreturn]] void throw_refusal(pjrt::Client& client, const Walk& walk, const pjrt::Error& error);
// When a compiled program can't be started, nearly always for want of memory: tells where the most of it would go.
[[noreturn]] void throw_failure(const Walk& walk, const pjrt::Error& error);

}  // namespace tpjrt::engine
