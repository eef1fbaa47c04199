// A graph that grows: what is new in it is compiled apart from what is known.
//
// A loop that appends to a tensor (`ids = torch.cat([ids, token])`) and runs a network on its end records another graph
// each round, of which all but a few calls were compiled before. XLA's programs have fixed shapes, so the whole would be
// compiled each round. Instead a graph that has the calls of an earlier one, in the same order, but some of them for other
// shapes, is run as up to three programs: the calls for other shapes that the rest needs, the rest, and the calls for other
// shapes that need the rest (each with what it rests on, or what rests on it). The middle one is found from the third round
// on. A training's second step, which updates what the first has made, has other calls, and is compiled as one.
//
// Where all that changes is bookkeeping (engine/interpret.h), the second round tells: the calls between what can be done
// before and what can be done after are those of an earlier graph. Then the outer parts are not compiled at all.
#pragma once

#include <unordered_map>
#include <vector>

#include "engine/walk.h"

namespace tpjrt::engine {

// What is equal for two graphs of the same calls in the same order, whatever their shapes and dtypes.
uint64_t outline_hash(const Walk& walk);
std::vector<const graph::Node*> in_recording_order(const Walk& walk);
using Calls = std::vector<graph::SignaturePtr>;
Calls calls_of(const Walk& walk);
// The part of each node of a walk, whose operands are in the same one or in earlier ones; empty: it is not cut.
using PartOfNode = std::vector<uint32_t>;
// Empty where there is no large part in the middle. `before`: the calls of an earlier graph of the same outline.
PartOfNode find_parts(const Walk& walk, const Calls& before);
// The same with bookkeeping as the outer parts, and what is equal for two graphs with the same middle part.
PartOfNode around_bookkeeping(const Walk& walk);
uint64_t middle_hash(const Walk& walk, const PartOfNode& part);
// The same parts, or the whole, in pieces that one program can be made of; empty: the whole is one. XLA:CPU took 280 s to
// compile the 12,000 calls of a solver's backward, and 15 s for half of them.
PartOfNode in_pieces(const Walk& walk, const PartOfNode& part);

class Parts {
 public:
  static constexpr size_t kLeastCalls = 100;  // of the middle part; fewer are compiled along: that takes little time

  // The walk's nodes must be those of the last walk.
  Parts(const Walk& walk, const PartOfNode& part);

  uint32_t count() const { return static_cast<uint32_t>(needed_.size()); }
  // The walk of one part, whose results are what cells hold and what later parts need. Under graph_lock() and the engine's
  // lock, in order, after the earlier parts were run, once for each. May be empty.
  void walk(uint32_t part, Walk& out);

 private:
  std::unordered_map<uint64_t, uint32_t> part_of_;  // by Node::id
  std::vector<std::vector<graph::Value>> needed_;   // by later parts
  std::vector<graph::Value> results_;               // of the whole walk: keeps the nodes alive
};

}  // namespace tpjrt::engine
