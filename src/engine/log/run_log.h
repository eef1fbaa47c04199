// The log behind torch_pjrt.explain(): every run of a graph and every call on the host while somebody listens.
//
// Without a listener it costs one atomic load. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "device/services/python_hooks.h"
#include "engine/executable/program.h"
#include "engine/log/description.h"
#include "engine/tier/policy.h"

namespace tpjrt::engine {

// How a new program was made. Times are in seconds.
struct Making {
  bool from_disk = false;
  double seconds = 0;                    // from the recorded graph to the executable
  double cpu_seconds = 0;                // CPU time of the whole process meanwhile
  Description description;               // of the new program
  std::optional<Description> resembles;  // the most similar earlier program
};

struct GraphRun {
  double when = 0;  // on the steady clock
  uint64_t graph = 0;
  std::string cause;
  device::Location where;
  size_t nodes = 0, arguments = 0, results = 0;
  int64_t argument_bytes = 0, result_bytes = 0;
  int64_t copied_bytes = 0;      // arguments and results copied between host and device
  double execute_seconds = 0;    // inside the call of execute
  std::string interpreted;       // Program::interpreted
  std::optional<Work> work;      // of the recorded graph
  double cpu_seconds = 0;        // the process's CPU time during the run, if interpreted
  std::optional<Making> making;  // empty: the program was in memory
};

struct HostCall {
  double when = 0;
  std::string op, reason;
  device::Location where;
};

using LogEntry = std::variant<GraphRun, HostCall>;

class RunLog {
 public:
  // Each start() needs one stop().
  void start();
  void stop();
  bool is_on() const { return listeners_.load(std::memory_order_relaxed) > 0; }
  // Call the next two only while is_on().
  void made(const Program& program, Making making);
  void ran(const Program& program, const char* cause, device::Location where, int64_t execute_ns,
           int64_t copied_bytes = 0, std::optional<Work> work = std::nullopt, int64_t cpu_ns = 0);
  void ran_on_host(const std::string& op, const char* reason);
  // Returns all entries since the last call.
  std::vector<LogEntry> take();

 private:
  std::atomic<int> listeners_{0};
  std::mutex lock_;
  std::vector<LogEntry> entries_;
  std::unordered_map<uint64_t, Making> making_;  // by serial: programs that have not run yet
};

}  // namespace tpjrt::engine
