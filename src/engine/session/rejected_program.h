// Errors for programs that XLA rejects or that can't run: the op at fault and the user's line.
#pragma once

#include <string_view>

#include "engine/executable/program.h"
#include "graph/fingerprint/walk.h"
#include "ops/rule/backend_lowerings.h"
#include "pjrt/api/error.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

// Compiles the graph's calls one by one to find the one at fault. Slow, but only on the way to an exception. The graph
// is unchanged.
[[noreturn]] void throw_refusal(pjrt::Client& client, ops::Target target, const graph::Walk& walk,
                                const pjrt::Error& error);
// Throws for a compiled program that can't run, nearly always for lack of memory. Names the call that needs the most of
// it, and adds `consequence`.
[[noreturn]] void throw_failure(const Program& program, const pjrt::Error& error, std::string_view consequence);

}  // namespace tpjrt::engine
