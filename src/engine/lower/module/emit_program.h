// Emits the StableHLO module of a walk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/lower/module/assertions.h"
#include "graph/fingerprint/walk.h"
#include "graph/scalar_value.h"
#include "ops/rule/backend_lowerings.h"
#include "ops/rule/emit.h"

namespace tpjrt::engine {

// The form of a graph's scalar in its program: a constant, or an argument (Note [Values that vary]).
struct ScalarSlot {
  graph::ScalarValue constant;  // unless promoted
  bool promoted = false;
  bool pinned = false;
};

// Promoted scalars are the program's last arguments: f64, then s64, in vectors of this size, the last ones shorter.
// XLA:CPU runs a program in one thread if no buffer exceeds 512 bytes, which is faster for small programs.
inline constexpr size_t kScalarsInVector = 64;

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

// Finds writes that XLA:CPU must not do in place.
//
// XLA:CPU fuses a dynamic_update_slice with the ops that compute the update into a loop over the overwritten memory,
// even if the update reads that memory at other places. The loop then reads elements that it has just written, so that
// `y = x.clone(); y[1:] += x[:-1]; y[2:] += 1` gives prefix sums. Barriers don't help: XLA removes them before fusion.

// Returns by Node::local whether an update written within the node may depend on the memory that it overwrites. Writes
// to views get a precise answer (a single element is read before it is written, so it counts as rows); other nodes,
// which may contain writes, get kReadAnywhere.
std::vector<ops::Overwrites> overwrites_of(const graph::Walk& walk, const std::vector<ScalarSlot>& slots);

// The sources of each result of a graph: leaves, and calls with runtime assertions.

// May outlive the walk that it is made from. Valid for every walk with the same fingerprint.
class Sources {
 public:
  // `calls`: for each assertion of a run, the index of its call in the walk.
  Sources(const graph::Walk& walk, const std::vector<uint32_t>& calls);
  // Makes all results depend on the sources of the result at `place`, too.
  void add_to_all(size_t place);

  // Returns the checks of each result, in the walk's order, if the leaves have the checks `leaves` and `run` has run
  // the graph. Null if nothing is asserted. Settles the run.
  std::vector<ChecksPtr> checks(const std::vector<ChecksPtr>& leaves, const std::shared_ptr<RunChecks>& run) const;

 private:
  using Bits = std::vector<uint64_t>;
  void name_assertions();
  size_t leaves_ = 0, words_ = 0;
  std::vector<Bits> results_;  // leaves, then assertions
  std::shared_ptr<const AssertionOrder> order_;
  // By result; equal lists are shared. Null: none.
  std::vector<std::shared_ptr<const std::vector<uint32_t>>> assertions_;
};

}  // namespace tpjrt::engine
