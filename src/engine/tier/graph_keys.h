// Graphs with dynamic shapes.
//
// Note [Dynamic shapes]: a graph with dynamic shapes is new each time: a cache, the tokens so far, sentences of other
// lengths. If each were compiled immediately, every token of a `generate()` would cost a program that never runs again.
// So among graphs that differ only in sizes, policies that compile immediately do so for two; the others are compiled
// once that is amortized (Note [Tiers]). Host-side integer ops don't count: tokens with and without a new mask have the
// same key. A graph that is nothing but such ops isn't compiled before it is amortized, either.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "graph/fingerprint/walk.h"

namespace tpjrt::engine {

// Returns true if the graph has only ops on a few integers. Hosts run these in next to no time, and their reader waits
// anyway.
bool has_integer_ops_only(const graph::Walk& walk);

// Hashes the chosen calls. Graphs have equal hashes if these calls have equal words and are connected in the same way
// to each other and to other values.
uint64_t hash_of_calls(const graph::Walk& walk, const std::function<bool(const graph::Node&)>& chosen,
                       const std::function<uint64_t(const graph::Node&)>& word);

// Returns a key that is equal for graphs that differ in sizes alone, and in ops on a few integers.
uint64_t shape_key(const graph::Walk& walk);

// Counts graphs without a program by keys that several graphs have.
class GraphKeys {
 public:
  // Returns how many graphs with this key were counted before, up to two, apart from the graph itself.
  int count(uint64_t key, const graph::Walk& walk);

 private:
  struct Seen {
    uint64_t first, second;  // hashes of graphs; 0: none
  };
  std::unordered_map<uint64_t, Seen> seen_;  // by key
};

}  // namespace tpjrt::engine
