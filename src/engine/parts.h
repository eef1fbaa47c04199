// A graph that grows: what is new in it is compiled apart from what is known.
//
// A loop that appends to a tensor (`ids = torch.cat([ids, token])`) and runs a network on its end records another graph
// each round, of which all but a few calls were compiled before. XLA's programs have fixed shapes, so the whole would be
// compiled each round. Instead such a graph is run as up to three programs: the new calls that the known ones need, the
// known ones, and the new calls that need those. The middle one is found from the third round on.
//
// Only a graph whose calls were all compiled before, in that order and for other shapes, is run so: a training's second
// step, which updates what the first has made, is a graph of its own, and compiled as one.
#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "engine/walk.h"

namespace tpjrt::engine {

// What is equal for two graphs of the same calls in the same order, whatever their shapes and dtypes.
uint64_t outline_hash(const Walk& walk);
// The part of each node of a walk; empty where a graph is no such graph.
using PartOfNode = std::vector<uint8_t>;
// Parts when many calls are known, few are new, and no known call needs a new one that needs much of the known. `is_known`:
// was a program with such a call compiled before? The walk's nodes must be those of the last walk.
PartOfNode find_parts(const Walk& walk, const std::function<bool(graph::SignaturePtr)>& is_known);

class Parts {
 public:
  static constexpr uint8_t kCount = 3;

  // The walk's nodes must be those of the last walk.
  Parts(const Walk& walk, const PartOfNode& part);

  // The walk of one part, whose results are what cells hold and what later parts need. Under graph_lock() and the engine's
  // lock, in order, after the earlier parts were run. May be empty.
  void walk(uint8_t part, Walk& out) const;

 private:
  std::unordered_map<uint64_t, uint8_t> part_of_;  // by Node::id
  std::vector<graph::Value> needed_[kCount];       // by later parts
  std::vector<graph::Value> results_;              // of the whole walk: keeps the nodes alive
};

}  // namespace tpjrt::engine
