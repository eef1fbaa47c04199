// One pass over everything that a sync has to run: the nodes in order, the leaves they read, and the fingerprint.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "graph/fingerprint/flattened_state.h"
#include "graph/node.h"

namespace tpjrt::graph {

// Adds a word to the hash of a sequence.
inline uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
  return hash ^ hash >> 32;
}

// Note [Graph fingerprint]: a fingerprint describes the graph exactly (signatures by address, operands by position,
// leaf types, results, aliases, flattened states), except for its scalars. Two graphs have equal fingerprints if and
// only if one program serves both, up to scalars that the program holds as constants. The hash of the fingerprint is
// the graph's hash, and comparing fingerprints compares structures.
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
  bool is_awaited = false;  // the caller waits for each run; no part of the fingerprint

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

std::vector<const Node*> in_recording_order(const Walk& walk);

}  // namespace tpjrt::graph
