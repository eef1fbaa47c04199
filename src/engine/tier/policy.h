// When a graph is compiled.
//
// Note [Tiers]: a graph that is met for the first time may never come again, and compiling costs thousands of times what it
// takes to run. So it is run call by call (tier 0, engine/run/interpret.h) until it has paid for its compile: until all
// its runs by calls together cost what the compile costs, by what both are predicted to cost (cost.h). Never more than twice
// the best is spent so. From then on its program runs (tier 1). The compile begins in the background
// (background.h) when the graph comes back for the first time, so that hardly anybody waits for it.
//
// Which tier a run takes depends on the graph and on how often it was met, never on time: the same script gives the same bits
// each time. A graph that an earlier process has paid for is compiled at once, as its program is on disk.
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

struct Coming;  // engine/session/programs.h

// What is known of a graph that has no program.
struct MetGraph {
  Cost cost;
  uint64_t number = 0;  // as a program's serial
  uint32_t met = 0;
  bool paid = false;               // by an earlier process, too
  std::shared_ptr<Coming> coming;  // its compile, once it has begun

  // Is this run to be compiled?
  bool has_paid() const { return paid || cost.compile_ns <= static_cast<int64_t>(met) * cost.by_calls_ns; }
  // For explain(): "3 of 120 by calls".
  std::string told() const;
};

class MetGraphs {
 public:
  // Counts one more meeting.
  std::shared_ptr<MetGraph> meet(const graph::Walk& walk);

 private:
  std::unordered_map<uint64_t, std::shared_ptr<MetGraph>> graphs_;  // by hash
};

}  // namespace tpjrt::engine
