// A check that all processes of a client have captured the same step.
#pragma once

#include "engine/session/session.h"
#include "graph/fingerprint/walk.h"

namespace tpjrt::engine {

// A captured step with collectives between processes is one program that all of them run. If their programs differed,
// they would deadlock or reduce unrelated values. So before its first run they compare their graphs. Waits for all
// processes and throws on each of them if the graphs differ. Does nothing for other programs. `program` belongs to the
// walk. Takes no lock.
void check_same_step(Session& session, const graph::Walk& walk, const Program& program);

}  // namespace tpjrt::engine
