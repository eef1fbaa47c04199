// When XLA refuses a program: finds the op it is about, and tells the user's line.
#pragma once

#include <string_view>

#include "engine/program/program.h"
#include "graph/tape/walk.h"
#include "pjrt/api/error.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

// Compiles the graph's calls one by one to find the culprit; slow, and only on the way to an exception. The graph is left
// as it is.
[[noreturn]] void throw_refusal(pjrt::Client& client, ops::Target target, const graph::Walk& walk,
                                const pjrt::Error& error);
// When a compiled program can't be run, nearly always for want of memory: tells where the most of it would go, and
// `consequence`.
[[noreturn]] void throw_failure(const Program& program, const pjrt::Error& error, std::string_view consequence);

}  // namespace tpjrt::engine
