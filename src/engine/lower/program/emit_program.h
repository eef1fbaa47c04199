// From a walk to the text of a StableHLO module.
#pragma once

#include <string>
#include <vector>

#include "engine/lower/program/number_slot.h"
#include "engine/lower/program/requirements.h"
#include "graph/tape/walk.h"
#include "ops/rule/target.h"

namespace tpjrt::engine {

struct EmittedProgram {
  std::string text;
  std::vector<ProgramRequirement> requirements;  // if any, one more result has their extremes
};

// `slots` says which numbers are arguments; those that a rule pinned are marked in it (and must not be promoted: then the
// text is emitted again without). Without requirements, the module is what the user's function says and no more.
// `knows_composites`: so does the compiler; another gets calls in their places.
EmittedProgram emit_program(const graph::Walk& walk, std::vector<NumberSlot>& slots, bool with_requirements,
                            ops::Target target, bool knows_composites = true);

}  // namespace tpjrt::engine
