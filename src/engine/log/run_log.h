// What torch_pjrt.explain() tells: each run of a graph and each call on the host, taken down while somebody asks for it.
//
// Costs one look at a counter when nobody does. May be used from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "device/services/location.h"
#include "engine/log/description.h"
#include "engine/tier/cost.h"

namespace tpjrt::engine {

// How a program came to be, if it was not there before. Times are in seconds.
struct Making {
  bool from_disk = false;
  double seconds = 0;                    // from the recorded graph to the executable
  double cpu_seconds = 0;                // the same, of all processors that the process had meanwhile
  Description description;               // of the new program
  std::optional<Description> resembles;  // of the most similar one before
};

struct GraphRun {
  double when = 0;  // of the steady clock
  uint64_t graph = 0;
  std::string cause;
  device::Location where;
  size_t nodes = 0, arguments = 0, results = 0;
  int64_t argument_bytes = 0, result_bytes = 0;
  int64_t copied_bytes = 0;       // of them, arguments and results that were copied between host and device
  double execute_seconds = 0;     // in the call of execute
  std::string by_calls;           // Program::by_calls
  std::optional<Cost> predicted;  // of what was recorded
  double cpu_seconds = 0;         // of all processors that the process had while it was run, where it was run by calls
  std::optional<Making> making;   // nothing: the program was in memory
};

struct HostCall {
  double when = 0;
  std::string op, reason;
  device::Location where;
};

using LogEntry = std::variant<GraphRun, HostCall>;

class RunLog {
 public:
  // Each start() is ended by a stop().
  void start();
  void stop();
  bool is_on() const { return listeners_.load(std::memory_order_relaxed) > 0; }
  // These are to be called only while it is on.
  void made(const Program& program, Making making);
  void ran(const Program& program, const char* cause, device::Location where, int64_t execute_ns,
           int64_t copied_bytes = 0, std::optional<Cost> predicted = std::nullopt, int64_t cpu_ns = 0);
  void ran_on_host(const std::string& op, const char* reason);
  // Everything since the last call.
  std::vector<LogEntry> take();

 private:
  std::atomic<int> listeners_{0};
  std::mutex lock_;
  std::vector<LogEntry> entries_;
  std::unordered_map<uint64_t, Making> making_;  // by serial: of programs that did not run yet
};

}  // namespace tpjrt::engine
