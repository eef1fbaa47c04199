// A graph that grows: what is new in it is compiled apart from what is known.
//
// Note [Growing graphs]: a loop that appends to a tensor (`ids = torch.cat([ids, token])`) and runs a network on its end records
// another graph each round, of which all but a few calls were compiled before. XLA's programs have fixed shapes, so the whole
// would be compiled each round. Instead a graph that has the calls of an earlier one, in the same order, but some of them for
// other shapes, is run as up to three programs: the calls for other shapes that the rest needs, the rest, and the calls for
// other shapes that need the rest (each with what it rests on, or what rests on it). The middle one is found from the third
// round on. A training's second step, which updates what the first has made, has other calls, and is compiled as one.
//
// Where all that changes is bookkeeping (engine/cut/bookkeeping.h), the second round tells: the calls between what can
// be done before and what can be done after are those of an earlier graph. Then the outer parts are not compiled at
// all.
//
// Where the calls for other shapes lie all over the graph, as the attention of each layer over a cache that grows by a token,
// they and the others take turns, each turn a program. Layers are alike, so few of these have to be compiled: for a new length
// one attention, and for the rest, once, what lies between two of them. Where next to all calls are new, as in training on
// sentences of another length, turns of new calls are cut in layers (engine/cut/repeats.h): a layer's program serves
// all of them.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/tape/parts.h"

namespace tpjrt::engine {

class Growth {
 public:
  // The parts of a new graph, if it has grown from one that was seen here before; empty if not. `may_interpret`: calls may be
  // run on the host (engine/run/interpret.h).
  graph::PartOfNode find(const graph::Walk& walk, bool may_interpret);

 private:
  using Calls = std::vector<graph::SignaturePtr>;

  std::unordered_map<uint64_t, Calls> by_shapeless_hash_;  // the last graph of each
  std::unordered_set<uint64_t> middles_;                   // of all large graphs, between their bookkeeping
};

}  // namespace tpjrt::engine
