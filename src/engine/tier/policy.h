// Decides when a graph is compiled.
//
// Note [Tiers]: a graph that occurs for the first time may never recur, and compiling it costs thousands of times as
// much as running it. So it is interpreted (tier 0), which costs rent: what a program would not have cost. When the
// rent of a graph's runs reaches the price of its compile, the program is bought, and it runs from then on (tier 1).
// The loss is bounded by the compile's cost, both against compiling everything first and against compiling nothing. A
// loop that is recorded as one graph pays for each iteration (Note [Loop rerolling]), so it may buy within one run.
//
// With a second processor, the compile begins in the background (background.h) when a quarter of its price is paid.
// The program takes over at the same run on any number of processors. On one, or if it isn't there yet, that run waits.
//
// If the device computes in host memory, PyTorch's CPU kernels run the ops (engine/run/interpret.h); on a GPU that
// PyTorch supports, its CUDA kernels do (Note [Interpreter tier on CUDA]). Another device with its own memory would
// have to copy what a graph reads to the host, so graphs are compiled there when first met. The host interprets only
// those with dynamic shapes (Note [Dynamic shapes]) and those on a few integers, and none but the latter in strict
// mode.
//
// The tier depends on the graphs and on how often each was executed, never on time: a script gives the same bits each
// time. A graph that an earlier process has amortized is compiled immediately, because its program is on disk. Under
// torch.use_deterministic_algorithms no graph changes its tier (stays_in_one_tier()).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "engine/tier/cuts.h"
#include "graph/fingerprint/walk.h"

namespace tpjrt::engine {

// The costs of Note [Tiers]: a decision by measured times would differ from run to run. So what a compile and an
// interpreted run cost is predicted from what the graph consists of, by prices that have a physical meaning. XLA's time
// goes by the StableHLO ops that the calls' rules emit, and is less for a call that occurs again. A program saves the
// overhead of calls, and the memory traffic of pointwise calls, which XLA fuses; it pays for its start and its
// arguments. It saves nothing of products, convolutions and sorts: both tiers spend the same time there. The prices are
// data: a file for each instruction set and one for CUDA (prices_*.inc). `./dev bench costs` measures them and reports
// the errors.

// Counts what in a graph costs time.
struct Work {
  double calls = 0;               // except for views and memory
  double tensors = 0;             // of calls on lists
  double bytes = 0;               // that pointwise calls read and write
  double arguments = 0;           // and results
  double ops = 0;                 // StableHLO ops of distinct calls
  double repeated = 0;            // of further equal calls
  double copies = 0, copied = 0;  // InterpretBy::kCopies: buffers and bytes
  double largest = 0;             // result's bytes
};

// Nanoseconds of one processor for each.
struct Prices {
  double call, tensor, byte;      // interpreted
  double launch, argument;        // of a program's run
  double graph, op, repeated_op;  // of its compile
  double copy, copied_byte;       // between the host and a device
};

struct Cost {
  int64_t compile = 0;
  int64_t rent = 0;  // of one interpreted run
};

// How the interpreter tier executes ops (Note [Tiers]): by PyTorch's CPU kernels in place, by its CUDA kernels, or by
// its CPU kernels on copies of the values that the graph reads.
enum class InterpretBy : uint8_t { kKernels, kCudaKernels, kCopies };

Work work_of(const graph::Walk& walk, InterpretBy by);
const Prices& prices_of(InterpretBy by);
Cost predicted_cost(const Work& work, const Prices& price);

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
struct CallsPlan;       // engine/run/calls_plan.h

// The profile of a graph that has no program.
struct GraphProfile {
  Cost cost;
  uint64_t number = 0;  // its number, like a program's serial
  uint32_t executions = 0;
  int64_t paid = 0;                         // rent of its interpreted runs
  bool begun = false;                       // its compile
  bool amortized = false;                   // amortized, maybe by an earlier process
  std::shared_ptr<PendingCompile> pending;  // its pending compile, once begun
  std::shared_ptr<const CallsPlan> plan;    // plan of interpreted runs, from the second on
  std::optional<Cut> cut;                   // for graphs of many calls
};

class GraphProfiles {
 public:
  // `processors`: number that this process may use; 0: ask the system when it first matters.
  explicit GraphProfiles(int processors = 0) : processors_(processors) {}

  // Returns how to cut a graph that has no program.
  Cut cut(const graph::Walk& walk, InterpretBy by);
  // Counts a graph that has no program. Returns true if at least two others with its shape key were counted before.
  // Parts of cut graphs are counted separately, because whole graphs of the key don't predict which parts recur.
  bool has_dynamic_shape(const graph::Walk& walk, bool is_part) {
    return keys_.count(graph::mixed(shape_key(walk), is_part), walk) == 2;
  }
  // Counts one more execution. For a new graph, `executions` is 1 afterwards.
  std::shared_ptr<GraphProfile> count_execution(const graph::Walk& walk, InterpretBy by);
  enum class TierDecision : uint8_t { kInterpret, kInterpretAndCompile, kProgram };
  // Decides how this run is executed, and counts its rent. kInterpretAndCompile: interpreted, while its compile begins.
  TierDecision decide(GraphProfile& graph) const;
  // Returns a text for explain(), "3 of 120 interpreted".
  std::string description(const GraphProfile& graph) const;

 private:
  // Returns true if compiles run in parallel with the program.
  bool overlaps() const;
  std::shared_ptr<GraphProfile>& of(const graph::Walk& walk);

  mutable int processors_;
  GraphKeys keys_;
  std::unordered_map<uint64_t, std::shared_ptr<GraphProfile>> graphs_;  // by hash
};

}  // namespace tpjrt::engine
