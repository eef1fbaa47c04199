// Graphs of the same calls in ever new orders.
//
// Note [Variety]: a program whose Python decides by chance (teacher forcing token by token, layers that are dropped) records
// another graph in each step, of the calls that it always records. Compiled whole, none would be found again: a seq2seq model of
// 20 tokens took 12 s a step. So where three graphs of the same calls were not met again, the next ones are cut where their rounds begin,
// that is where a call occurs that all rounds have. Then a piece depends on what is in it and not on what came before. There are few
// kinds of rounds, and soon all are known. (A graph that is cut and does come back is compiled as one after all.)
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "graph/tape/parts.h"

namespace tpjrt::engine {

class Variety {
 public:
  // The part of each node of a graph without a program; empty where it is not one of many orders of the same calls.
  // `is_found_again`: was a graph of that hash run more than once?
  graph::PartOfNode find(const graph::Walk& walk, const std::function<bool(uint64_t)>& is_found_again);

 private:
  std::unordered_map<uint64_t, std::vector<uint64_t>> orders_;  // by the hash of the set of calls: of the graphs met
};

}  // namespace tpjrt::engine
