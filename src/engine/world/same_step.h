// Whether the processes of a client have captured one step.
#pragma once

#include "engine/session/session.h"
#include "graph/tape/walk.h"

namespace tpjrt::engine {

// A captured step with collectives between processes is one program, which all of them run: where theirs differed they would wait
// for each other for ever, or add up what is not the same. So they compare their graphs, before it first runs. Waits for all of
// them; throws where they differ, on each of them. Does nothing for other programs. No lock is held.
// `program` is that of the walk.
void check_same_step(Session& session, const graph::Walk& walk, const Program& program);

}  // namespace tpjrt::engine
