// Counters of what the engine did, for torch_pjrt.metrics(). May be used from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "engine/program/collectives.h"

namespace tpjrt::engine {

struct Metrics {
  std::atomic<uint64_t> graphs_compiled{0}, graphs_loaded_from_disk{0}, executions{0};
  std::atomic<uint64_t> graphs_run_by_calls{0}, nodes_executed{0};
  std::atomic<uint64_t> calls_on_host{0};  // of them, in the place of programs
  std::atomic<int64_t> compile_ns{0}, prepare_ns{0}, execute_ns{0};

  // Of a world.
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

// Of the steady clock.
int64_t now_ns();
// Of all processors that this process had.
int64_t process_cpu_ns();

}  // namespace tpjrt::engine
