// Decides when a graph is compiled.
//
// Note [Tiers]: a graph that occurs for the first time may never recur, and compiling it costs thousands of times as
// much as running it. So it is interpreted (tier 0) until its compile is amortized: until its program would have saved,
// over all interpreted runs, what the compile costs, by predicted costs (Note [Costs]). From then on its program runs
// (tier 1). A graph whose program would save nothing is never compiled. A loop that is recorded as one graph counts
// once for each iteration (Note [Loop rerolling]), so it may be amortized within one run.
//
// With a second processor, the compile runs in the background (background.h), and only waits cost time. So it begins
// when a quarter of its cost is saved. The program takes over after steps of as much predicted time as the compile
// needs, including their recording and the runs of other graphs, behind compiles that began earlier. A single processor
// would only be shared: there the compile begins when its full cost is saved, and the step waits for it. Either way the
// loss is bounded by the compile's cost, both against compiling everything first and against compiling nothing.
//
// If the device computes in host memory, PyTorch's CPU kernels run the ops (engine/run/interpret.h); on a GPU that
// PyTorch supports, its CUDA kernels do (Note [Interpreter tier on CUDA]). Another device with its own memory would
// have to copy what a graph reads to the host, so graphs are compiled there when first met. The host interprets only
// those with dynamic shapes (Note [Dynamic shapes]) and those on a few integers, and none but the latter in strict
// mode.
//
// The tier depends on the graphs and on how often each was executed, never on time: a script gives the same bits each
// time on the same number of processors. A graph that an earlier process has amortized is compiled immediately, because
// its program is on disk. Under torch.use_deterministic_algorithms no graph changes its tier (stays_in_one_tier()).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "graph/fingerprint/walk.h"

namespace tpjrt::engine {

// The predicted cost of compiling, recording and running a graph. Predictions depend on calls and shapes alone and
// never on measurements, so that a script takes the same decisions in every run.
//
// Note [Costs]: each call is of one kind, by its name, and each kind is a row of one table (cost.cpp). A row has XLA's
// compile time for such a call, and the time of a run by PyTorch's kernel and within a program, as a constant and a
// cost for each element. Products, convolutions and attention also have a cost for each multiplication. Views cost next
// to nothing. A call on lists counts as one call for each tensor, and a recurrent layer as one for each step. XLA
// compiles repeated calls in a fraction of the time, and the backward of windows, rows or indices takes it several
// times its forward. The sums are within 1.3 of measured times for the median graph and within 2 for nine of ten, apart
// from the overall speed of the machine: `./dev bench costs`.

// Nanoseconds on one processor.
struct Cost {
  int64_t compile = 0;  // the whole graph
  int64_t record = 0;   // its calls and the Python code around them
  int64_t calls = 0;    // one interpreted run, by PyTorch's kernels or by existing programs
  int64_t program = 0;  // one run of its program
};

// How the interpreter tier executes ops (Note [Tiers]): by PyTorch's CPU kernels in place, by its CUDA kernels, or by
// its CPU kernels on copies of the values that the graph reads.
enum class InterpretBy : uint8_t { kKernels, kCudaKernels, kCopies };

Cost predicted_cost(const graph::Walk& walk, InterpretBy by);

// Returns true for ops on a few integers (positions, lengths, masks, the tokens so far). The host's kernels compute
// them in next to no time, whatever the device, and loops make them in ever new shapes.
bool is_of_few_integers(const graph::Node& node);
// Returns true for this project's own nodes that allocate, read or write memory (device/tensor/access.cpp).
bool is_of_memory(const graph::Signature& signature);

// The policy in TORCH_PJRT_COMPILE. kAuto: Note [Tiers]. kFirst: compiles a graph at its first run, except for dynamic
// shapes (Note [Dynamic shapes]). kNever: interprets everything.
enum class CompilePolicy : uint8_t { kAuto, kFirst, kNever };
// The policy of the whole process. compile_policy_named throws unless the name is "auto", "first" or "never".
CompilePolicy compile_policy();
void set_compile_policy(CompilePolicy policy);
CompilePolicy compile_policy_named(const std::string& name);
// For tests and tools that want a program of each graph: false lets kFirst compile graphs with dynamic shapes, too.
bool interprets_growing();
void set_interprets_growing(bool value);
// Returns true under torch.use_deterministic_algorithms: a graph must give the same bits each time, and two tiers
// don't. Graphs are then interpreted for good, or compiled at their first run.
bool stays_in_one_tier();

struct PendingCompile;  // engine/session/program_table.h
struct CallsPlan;       // engine/run/interpret.h

// The profile of a graph that has no program.
struct GraphProfile {
  Cost cost;
  uint64_t number = 0;  // its number, like a program's serial
  uint32_t executions = 0;
  int64_t accrued = 0;                      // time that a program would have saved over its interpreted runs
  int64_t due = 0;                          // when its compile should be done; 0: it hasn't begun
  bool amortized = false;                   // amortized, maybe by an earlier process
  std::shared_ptr<PendingCompile> pending;  // its pending compile, once begun
  std::shared_ptr<const CallsPlan> plan;    // plan of interpreted runs, from the second on
};

class GraphProfiles {
 public:
  // `processors`: number that this process may use; 0: ask the system when it first matters.
  explicit GraphProfiles(int processors = 0) : processors_(processors) {}

  // Counts one more execution. For a new graph, `executions` is 1 afterwards.
  std::shared_ptr<GraphProfile> count_execution(const graph::Walk& walk, InterpretBy by);
  enum class TierDecision : uint8_t { kInterpret, kInterpretAndCompile, kProgram };
  // Decides how this run is executed, and counts its cost. kInterpretAndCompile: interpreted, while its compile begins.
  TierDecision decide(GraphProfile& graph);
  // Counts the run of a program with this predicted time, recording included.
  void pass(int64_t predicted) { now_ += predicted; }
  // Returns a text for explain(), "3 of 120 interpreted".
  std::string description(const GraphProfile& graph) const;

 private:
  // Returns the time to be saved before the compile begins.
  int64_t share(const GraphProfile& graph) const;
  // Returns true if compiles run in parallel with the program.
  bool overlaps() const;

  mutable int processors_;
  int64_t now_ = 0;                                                     // predicted time of all runs so far
  int64_t free_at_ = 0;                                                 // when the compiles begun so far should be done
  std::unordered_map<uint64_t, std::shared_ptr<GraphProfile>> graphs_;  // by hash
};

}  // namespace tpjrt::engine
