// Graphs of the same calls in ever new orders.
//
// Note [Variety]: a program whose Python decides by chance (teacher forcing token by token, layers that are dropped) records
// another graph in each step, of the calls that it always records. Compiled whole, none would be found again: a seq2seq model of
// 20 tokens took 12 s a step. So from the third graph of the same calls on, such graphs are cut where their rounds begin, that is
// where a call occurs that all rounds have. Then a piece depends on what is in it and not on what came before. There are few
// kinds of rounds, and soon all are known.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "engine/parts.h"

namespace tpjrt::engine {

class Variety {
 public:
  // The part of each node of a graph without a program; empty where it is not one of many orders of the same calls.
  PartOfNode find(const Walk& walk);

 private:
  std::unordered_map<uint64_t, uint32_t> orders_;  // by the hash of the set of calls: graphs met
};

}  // namespace tpjrt::engine
