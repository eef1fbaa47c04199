// One pass over everything that a sync has to run: the nodes in order, the leaves they read, and the fingerprint.
//
// Note [Graph fingerprint]: a fingerprint describes the graph exactly (signatures by address, operands by position,
// leaf types, results, aliases, flattened states), except for its scalars. Two graphs have equal fingerprints if and
// only if one program serves both, up to scalars that the program holds as constants. The hash of the fingerprint is
// the graph's hash, and comparing fingerprints compares structures.
//
// Graphs that run in parts: the part of each node, and the walk of each part.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "graph/node.h"

namespace tpjrt::graph {

// Flattened state: one argument and one result of a program for many small tensors that it updates.
//
// Note [Flattened state]: a buffer that a program takes and returns costs a plugin about a microsecond whatever its
// size: about ten allocations and as many locks. Copying a few hundred bytes costs a hundredth of that. So if a
// compiled function updates many small tensors on the CPU, as an optimizer does with biases, they are copied into
// flattened states before the program runs and out of them afterwards (CompiledGraph). A flattened state is a dense
// vector of its members, one after another, each in its own memory order (Note [Buffers]). In the program's signature,
// flattened states follow the other leaves and the other results. A flattened state has at most 512 bytes: XLA:CPU runs
// a program in one thread if no buffer is larger, which is faster for small programs.

struct Walk;

struct FlattenedState {
  struct Member {
    uint32_t leaf = 0, result = 0;  // in the walk: the old value and the new one
    int64_t first = 0;              // first element in the flattened state
  };
  c10::ScalarType dtype = c10::kFloat;
  int64_t elements = 0;
  std::vector<Member> members;
};

// Moves aliases into flattened states if that pays. `may_be_flattened` has an entry for each alias of the walk.
void flatten_state(Walk& walk, const std::vector<char>& may_be_flattened);

// Returns the index of each of the walk's leaves (or results) among the program's arguments (or results); -1 for
// members of flattened states.
std::vector<int64_t> argument_places(const Walk& walk);
std::vector<int64_t> result_places(const Walk& walk);
// The number of places other than -1; flattened states come after these.
int64_t count_of_own(const std::vector<int64_t>& places);

// Adds a word to the hash of a sequence.
inline uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
  return hash ^ hash >> 32;
}

struct Walk {
  std::vector<Node*> nodes;          // pending, operands first
  std::vector<NodePtr> leaves;       // the program's arguments
  std::vector<Value> results;        // kept alive; the slots' values, in recording order
  std::vector<ScalarValue> scalars;  // of all nodes, in order
  struct Alias {
    uint32_t leaf, result;  // the result may overwrite the leaf's memory
  };
  std::vector<Alias> aliases;
  std::vector<FlattenedState> states;  // in traces only
  std::vector<uint64_t> fingerprint;
  uint64_t hash = 0;

  bool empty() const { return results.empty(); }
  void clear();
};

// A graph read from a fingerprint. For the cold path.
struct DecodedGraph {
  struct Source {  // a result of a call, or a leaf
    bool leaf = false;
    uint32_t number = 0, index = 0;
  };
  struct Call {
    SignaturePtr signature = nullptr;
    std::vector<Source> operands;
  };
  std::vector<TypePtr> leaves;
  std::vector<Call> calls;
  std::vector<Source> results;
};
DecodedGraph decode_fingerprint(const std::vector<uint64_t>& fingerprint);

// Collects the components of these storage slots. Call it under graph_lock() and the engine's lock. Throws
// DependsOnData if a value depends on a placeholder.
void walk(c10::ArrayRef<StorageSlot*> slots, Walk& out);
// Likewise for values in the components of `within` whose node is `chosen`: those that storage slots hold, and
// `needed`.
void walk_some(const std::vector<Value>& within, const std::function<bool(const Node&)>& chosen,
               const std::vector<Value>& needed, Walk& out);
// Likewise for the graph below `results` alone, whatever else their components contain.
void walk_values(const std::vector<Value>& results, Walk& out);
// Likewise for a trace, whose placeholders are arguments like other leaves. `updates`: leaves that a result replaces.
struct Update {
  const Node* leaf;
  uint32_t result;
  bool may_be_flattened = false;  // Note [Flattened state]
};
// `supplied`: results whose memory the caller gives, each as one more leaf (Note [Supplied results]).
void walk_trace(const std::vector<Value>& results, c10::ArrayRef<Update> updates, c10::ArrayRef<uint32_t> supplied,
                Walk& out);

// By Node::local. A node's operands are in the same part or in earlier ones. Empty: the graph is not cut.
using PartOfNode = std::vector<uint32_t>;

std::vector<const Node*> in_recording_order(const Walk& walk);

class Parts {
 public:
  // The walk's nodes must be those of the last walk.
  Parts(const Walk& walk, const PartOfNode& part);

  uint32_t count() const { return static_cast<uint32_t>(needed_.size()); }
  // Walks one part, whose results are the values that storage slots hold and that later parts need. Call it once for
  // each part, in order, after the earlier parts have run, under graph_lock() and the engine's lock. The walk may be
  // empty.
  void walk(uint32_t part, Walk& out);

 private:
  std::unordered_map<uint64_t, uint32_t> part_of_;  // by Node::id
  std::vector<std::vector<Value>> needed_;          // values that later parts need
  std::vector<Value> results_;                      // of the whole walk: keep the nodes alive
};

}  // namespace tpjrt::graph
