// Counters of the engine's work, for torch_pjrt.metrics(). Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "engine/executable/collectives.h"

namespace tpjrt::engine {

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
