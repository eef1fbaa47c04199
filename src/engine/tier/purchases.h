// What was bought of single calls, on a device where each is a program of its own (Note [Tiers]).
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "engine/tier/cost.h"
#include "graph/tape/walk.h"

namespace tpjrt::engine {

// How the calls of one graph are run: by Node::local, does the host's kernel run it? Else a program of one call.
struct ByOneCall {
  int64_t cost = 0;  // predicted, with what has to be compiled first
  std::vector<bool> on_host;
};

class Purchases {
 public:
  // `has_kernel`: can the host run such a call?
  explicit Purchases(std::function<bool(graph::SignaturePtr)> has_kernel) : has_kernel_(std::move(has_kernel)) {}

  // `cost`: of the graph. kPrograms: the host runs calls of a few integers. kEither: also those that haven't paid for a
  // program of their own, and it costs no less than programs would, so that a graph of new calls is compiled whole.
  ByOneCall calls_of(const graph::Walk& walk, const Cost& cost, CallsBy by) const;
  // They were run so.
  void ran(const graph::Walk& walk, const std::vector<bool>& on_host);
  // They were compiled within their graph.
  void compiled(const graph::Walk& walk);

 private:
  // In nanoseconds.
  struct Spent {
    int64_t compiling = 0;  // within graphs, and alone
    int64_t lost = 0;       // on the host, over what its program takes
    bool alone = false;     // it is a program
  };
  // What has to be compiled before all these calls can be run as programs.
  int64_t missing(const graph::Walk& walk) const;
  // Each call by whoever costs less.
  ByOneCall by_either(const graph::Walk& walk) const;

  std::function<bool(graph::SignaturePtr)> has_kernel_;
  std::unordered_map<graph::SignaturePtr, Spent> spent_;
};

}  // namespace tpjrt::engine
