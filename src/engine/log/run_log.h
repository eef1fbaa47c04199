// The log behind torch_pjrt.explain(): every run of a graph and every call on the host while somebody listens.
//
// Without a listener it costs one atomic load. Thread-safe.
//
// Counters of the engine's work, for torch_pjrt.metrics(). Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "device/services/python_hooks.h"
#include "engine/executable/compiler.h"
#include "engine/executable/program.h"
#include "engine/tier/policy.h"

namespace tpjrt::engine {

// A readable description of a program's graph, and the graph that it resembles. torch_pjrt.explain() reports both for
// new programs.
struct Description {
  // The origin of a tensor: a result of a call or, if `call` < 0, the program's argument -1 - call.
  struct Source {
    int64_t call = 0;
    uint32_t index = 0;
  };
  // One argument of a call. Each element of a list is a field of its own, "tensors[2]".
  struct Field {
    enum class Kind : uint8_t {
      kTensor,
      kAttribute,
      kScalar,
      kInput,
      kPinned
    };  // kInput: a scalar that is an input of the program
    std::string name;
    Kind kind = Kind::kAttribute;
    std::string text;  // a tensor's type, otherwise the value
    Source source;     // of a tensor
  };
  struct Call {
    std::string op, file;  // the user's line that first recorded this call
    int line = 0;
    std::vector<Field> fields;
  };
  uint64_t graph = 0;  // the program's serial
  std::vector<Call> calls;
  std::vector<std::string> arguments;  // types
  std::vector<Source> results;
  std::map<std::pair<std::string, std::string>, uint32_t> composites;  // (name, implementation) -> count
  std::map<std::pair<std::string, std::string>, uint32_t> kernels;     // (op, CPU kernel) -> count
  std::vector<std::pair<uint32_t, uint32_t>> reused;                   // (argument, result): donated memory
};

Description description_of(const Program& program);

// Returns the program that has the most calls, types and operands in common with the new one; null if none shares half
// of its ops. `programs` doesn't contain the new one.
std::shared_ptr<const Program> most_similar(const Program& fresh,
                                            const std::vector<std::shared_ptr<Program>>& programs);

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

struct Metrics {
  std::atomic<uint64_t> graphs_compiled{0}, graphs_loaded_from_disk{0}, executions{0};
  std::atomic<uint64_t> graphs_interpreted{0}, nodes_executed{0};
  std::atomic<uint64_t> calls_on_host{0};  // among them, those that replaced programs
  std::atomic<int64_t> compile_ns{0}, prepare_ns{0}, execute_ns{0};

  // Adds a world program's collectives.
  void count(const Collectives& collectives);
  Collectives collectives() const;

  void count_sync(const char* cause);
  std::map<std::string, uint64_t> syncs_by_cause() const;
  uint64_t syncs() const;
  void reset();

 private:
  mutable std::mutex lock_;
  std::map<std::string, uint64_t, std::less<>> causes_;
  Collectives collectives_;
};

// Returns the steady clock's time.
int64_t now_ns();
// Returns this process's CPU time, summed over all processors.
int64_t process_cpu_ns();

}  // namespace tpjrt::engine
