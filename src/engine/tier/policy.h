// When a graph is compiled.
//
// Note [Tiers]: a graph that is met for the first time may never come again, and compiling costs thousands of times what it
// takes to run. So it is run call by call (tier 0) until it has paid for its compile: until all its runs by calls together
// cost what the compile costs, by what both are predicted to cost (cost.h). Never more than twice the best is spent so. From
// then on its program runs (tier 1). The compile begins in the background (background.h) when the graph comes back for the
// first time, so that hardly anybody waits for it. A loop that is recorded as one graph is met once for each round (Note
// [Repeats]): it may pay within one run.
//
// Where the device computes in the host's memory, calls are run by PyTorch's CPU kernels (engine/run/interpret.h). A device
// with a memory of its own runs each as a program of one call, which is compiled first, and then serves every graph that has
// this call. That is one more purchase, of which the same is true: what was spent on a call within whole graphs counts for
// it, so that the first graphs of a program are compiled whole, and the next ones, of the same calls in another order or for
// another length, are put together of what is there.
//
// Which tier a run takes depends on the graphs and on how often each was met, never on time: the same script gives the same
// bits each time. A graph that an earlier process has paid for is compiled at once, as its program is on disk.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "engine/tier/cost.h"
#include "graph/tape/walk.h"

namespace tpjrt::engine {

// TORCH_PJRT_COMPILE. kFirst: every graph when it is first run. kAuto: Note [Tiers]. kReady: as kAuto, and a program that is
// ready sooner runs sooner.
enum class CompilePolicy : uint8_t { kFirst, kAuto, kReady };
// Throws on another word than "first", "auto" or "ready". For the whole process.
CompilePolicy compile_policy();
void set_compile_policy(CompilePolicy policy);
CompilePolicy compile_policy_named(const std::string& name);

struct Coming;     // engine/session/programs.h
struct CallsPlan;  // engine/run/calls_plan.h

// What is known of a graph that has no program.
struct MetGraph {
  Cost cost;
  uint64_t number = 0;  // as a program's serial
  uint32_t met = 0;
  int64_t spent = 0;                      // on its runs by calls
  bool paid = false;                      // by an earlier process, too
  std::shared_ptr<Coming> coming;         // its compile, once it has begun
  std::shared_ptr<const CallsPlan> plan;  // of its runs by calls, from the second on

  // For explain(): "3 of 120 by calls".
  std::string told() const;
};

class MetGraphs {
 public:
  // Counts one more meeting. Of one that is new, `met` is 1.
  std::shared_ptr<MetGraph> meet(const graph::Walk& walk, CallsBy by);
  // Is this run of it by calls? Counts what either way costs.
  bool takes_calls(const graph::Walk& walk, MetGraph& graph, CallsBy by);

 private:
  // What has to be compiled before its calls can be run one by one.
  int64_t missing(const graph::Walk& walk) const;

  std::unordered_map<uint64_t, std::shared_ptr<MetGraph>> graphs_;  // by hash
  // What was spent on compiling each call, where calls are programs: within graphs, and alone.
  std::unordered_map<graph::SignaturePtr, int64_t> spent_;
};

}  // namespace tpjrt::engine
