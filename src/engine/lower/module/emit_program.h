// Emits the StableHLO module of a walk.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/lower/module/assertions.h"
#include "engine/lower/module/scalar_slot.h"
#include "graph/fingerprint/walk.h"
#include "ops/rule/backend_lowerings.h"

namespace tpjrt::engine {

struct EmittedProgram {
  std::string text;
  std::vector<int> processes;                // those that run it together; empty: this one alone, or a world
  bool draws = false;                        // exported: it has a random state
  std::vector<uint32_t> unchanged;           // exported: results that update a leaf with its own value
  std::vector<ProgramAssertion> assertions;  // if any, an additional result holds their extremes
  std::map<std::pair<std::string, std::string>, uint32_t>
      kernels;  // (op, CPU kernel that the program calls) -> number of calls
};

// The interface of a program. Note [Exported programs]: an exported program takes and returns tensors by their sizes,
// row-major whatever their strides, and has no vectors of scalars. If it draws, its last argument is the random state,
// s64[2] of a seed and an offset. The result before the assertions is the next state and aliases it. Keys are those of
// a generator in that state.
enum class Interface : uint8_t { kOwn, kExported };

// Emits the program. `slots` says which scalars are arguments. Scalars that a rule pinned are marked in it; they must
// not be promoted, so the caller emits the text again. Without assertions, the module is the user's function and no
// more. `knows_composites`: the compiler accepts composites; otherwise calls replace them.
EmittedProgram emit_program(const graph::Walk& walk, std::vector<ScalarSlot>& slots, bool with_assertions,
                            ops::Target target, bool knows_composites = true, Interface interface = Interface::kOwn);

}  // namespace tpjrt::engine
