// The compile budget of single-op programs, on a device where each op is a program of its own (Note [Tiers]).
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "engine/tier/cost.h"
#include "graph/tape/walk.h"

namespace tpjrt::engine {

// How the calls of one graph run: by the host's kernel if on_host is true at Node::local, otherwise as a single-op
// program.
struct ByOneCall {
  int64_t cost = 0;  // predicted, with pending compiles
  std::vector<bool> on_host;
};

class Purchases {
 public:
  // `has_kernel`: whether the host can run such a call.
  explicit Purchases(std::function<bool(graph::SignaturePtr)> has_kernel) : has_kernel_(std::move(has_kernel)) {}

  // Plans a graph's calls; `cost` is the graph's. kPrograms: the host runs ops on a few integers. kEither: also ops
  // whose own program is not amortized. The cost is then at least that of programs, so that a graph of new ops is
  // compiled whole.
  ByOneCall calls_of(const graph::Walk& walk, const Cost& cost, CallsBy by) const;
  // Records that the calls were executed like this.
  void ran(const graph::Walk& walk, const std::vector<bool>& on_host);
  // Records that the calls were compiled within their graph.
  void compiled(const graph::Walk& walk);

 private:
  // In nanoseconds.
  struct Spent {
    int64_t compiling = 0;  // within graphs, and alone
    int64_t lost = 0;       // host time in excess of its program's
    bool alone = false;     // it has a program of its own
  };
  // Returns the compile time that running all these calls as programs would still take.
  int64_t missing(const graph::Walk& walk) const;
  // Executes each call in the cheaper way.
  ByOneCall by_either(const graph::Walk& walk) const;

  std::function<bool(graph::SignaturePtr)> has_kernel_;
  std::unordered_map<graph::SignaturePtr, Spent> spent_;
};

}  // namespace tpjrt::engine
