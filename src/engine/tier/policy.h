// When a graph is compiled.
//
// Note [Tiers]: a graph that is met for the first time may never come again, and compiling costs thousands of times what it
// takes to run. So it is run call by call (tier 0) until it would have paid for its compile: until its program would have
// saved, in all its runs by calls together, what the compile costs, by what all three are predicted to cost (cost.h). From then
// on its program runs (tier 1). One that would save nothing is never compiled. A loop that is recorded as one graph is met
// once for each round (Note [Repeats]): it may pay within one run.
//
// Where there is a second processor, the compile runs there meanwhile (background.h), and costs the program only what it
// waits. So it begins when a quarter of it is saved, and its turn comes when it should be there: when steps of as much predicted
// time have gone by since, their recording and all other graphs' runs included, behind the compiles that began before it.
// One processor would only share its time: there it begins when all is saved, and is waited for. Either way no more than that
// is lost against a program that compiles everything first, and against one that compiles nothing.
//
// Where the device computes in the host's memory, calls are run by PyTorch's CPU kernels (engine/run/interpret.h), and on a GPU
// that PyTorch has kernels for by its CUDA kernels (Note [Calls on CUDA]). Another device
// with a memory of its own runs each as a program of one call, which is compiled first, and then serves every graph that has
// this call. That is one more purchase, of which the same is true: a call is run by the host's kernel, its copies included,
// until its program would have saved what it costs. In strict mode it is a program at once. The first graphs of a program are
// compiled whole, as if their calls had to be bought; what was spent on a call within whole graphs counts for it, so that
// the next ones, of the same calls in another order, are not. Nor is a graph that differs from an earlier one in sizes alone
// (Note [Growing graphs]): its calls do, too, and they may never come again.
//
// Which tier a run takes depends on the graphs and on how often each was met, never on time: the same script gives the same
// bits each time on as many processors. A graph that an earlier process has paid for is compiled at once, as its program is
// on disk. Under torch.use_deterministic_algorithms no graph changes its tier (stays_in_one_tier()).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/tier/cost.h"
#include "engine/tier/purchases.h"
#include "graph/tape/walk.h"

namespace tpjrt::engine {

// TORCH_PJRT_COMPILE. kEvery: every graph when it is first run. kFirst: the same, but for what comes in ever other sizes (Note
// [Growing graphs]). kAuto: Note [Tiers]. kReady: as kAuto, but a compile begins when a graph comes back for the first time, and a
// program that is ready sooner runs sooner. kNever: by calls, always.
enum class CompilePolicy : uint8_t { kEvery, kFirst, kAuto, kReady, kNever };
// Throws on another word than "every", "first", "auto", "ready" or "never". For the whole process.
CompilePolicy compile_policy();
void set_compile_policy(CompilePolicy policy);
CompilePolicy compile_policy_named(const std::string& name);
// torch.use_deterministic_algorithms: one graph gives the same bits each time, which two tiers don't. Graphs are run by PyTorch's
// kernels for good, or are compiled when they are first run.
bool stays_in_one_tier();

struct Coming;     // engine/session/programs.h
struct CallsPlan;  // engine/run/calls_plan.h

// What is known of a graph that has no program.
struct MetGraph {
  Cost cost;
  uint64_t number = 0;  // as a program's serial
  uint32_t met = 0;
  int64_t saved = 0;                      // by a program that would have been there for its runs by calls
  int64_t due = 0;                        // when its compile should be done; 0: it hasn't begun
  bool paid = false;                      // by an earlier process, too
  std::vector<bool> on_host;              // of this run by calls, where calls are programs: ByOneCall
  std::shared_ptr<Coming> coming;         // its compile, once it has begun
  std::shared_ptr<const CallsPlan> plan;  // of its runs by calls, from the second on
};

class MetGraphs {
 public:
  // `processors`: that this process may use; 0: to be asked of the system when it matters for the first time. `has_kernel`:
  // can the host run such a call?
  explicit MetGraphs(
      int processors = 0, std::function<bool(graph::SignaturePtr)> has_kernel = [](auto) { return true; })
      : processors_(processors), purchases_(std::move(has_kernel)) {}

  // Counts one more meeting. Of one that is new, `met` is 1.
  std::shared_ptr<MetGraph> meet(const graph::Walk& walk, CallsBy by);
  enum class Turn : uint8_t { kCalls, kCallsAndBegin, kProgram };
  // How is this run of it done? kCallsAndBegin: by calls, and its compile begins. Counts what it costs.
  Turn turn(const graph::Walk& walk, MetGraph& graph, CallsBy by);
  // A program ran that takes so long, recording included.
  void pass(int64_t predicted) { now_ += predicted; }
  // For explain(): "3 of 120 by calls", and how many calls of this run the host does where they are programs.
  std::string told(const MetGraph& graph) const;

 private:
  // What is to be saved before the compile begins.
  int64_t share(const MetGraph& graph) const;
  // Do compiles run beside what is run?
  bool overlaps() const;

  mutable int processors_;
  int64_t now_ = 0;                                                 // predicted time of all runs so far
  int64_t free_at_ = 0;                                             // when the compiles that began should be done
  std::unordered_map<uint64_t, std::shared_ptr<MetGraph>> graphs_;  // by hash
  Purchases purchases_;                                             // where calls are programs
};

}  // namespace tpjrt::engine
