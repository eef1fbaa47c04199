// From a walk to the text of a StableHLO module.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/lower/program/number_slot.h"
#include "engine/lower/program/requirements.h"
#include "graph/tape/walk.h"
#include "ops/rule/target.h"

namespace tpjrt::engine {

struct EmittedProgram {
  std::string text;
  std::vector<int> processes;                    // which run it together; none: it is this one's, or a world's
  bool draws = false;                            // exported: it has a random state
  std::vector<uint32_t> unchanged;               // exported: results that are written over leaves and are these leaves
  std::vector<ProgramRequirement> requirements;  // if any, one more result has their extremes
  std::map<std::pair<std::string, std::string>, uint32_t>
      kernels;  // (op, kernel of the CPU's that it calls) -> how many
};

// Whom a program is for. Note [Exported programs]: one that leaves takes and gives tensors by their sizes, row-major, whatever
// their strides, and no packs of numbers. Where it draws, its last argument is the random state, s64[2] of a seed and an
// offset, and the result before the requirements is the next state, written over it: the keys are those that a generator
// with that state gives.
enum class Interface : uint8_t { kOwn, kExported };

// `slots` says which numbers are arguments; those that a rule pinned are marked in it (and must not be promoted: then the
// text is emitted again without). Without requirements, the module is what the user's function says and no more.
// `knows_composites`: so does the compiler; another gets calls in their places.
EmittedProgram emit_program(const graph::Walk& walk, std::vector<NumberSlot>& slots, bool with_requirements,
                            ops::Target target, bool knows_composites = true, Interface interface = Interface::kOwn);

}  // namespace tpjrt::engine
