// Counts syncs by cause, and reads the clocks.
#include "engine/log/metrics.h"

#include <time.h>

#include <chrono>
#include <string_view>

namespace tpjrt::engine {

void Metrics::reset() {
  graphs_compiled = graphs_loaded_from_disk = executions = graphs_interpreted = calls_on_host = 0;
  nodes_executed = 0;
  compile_ns = prepare_ns = execute_ns = 0;
  std::lock_guard guard(lock_);
  causes_.clear();
  collectives_.clear();
}

void Metrics::count(const Collectives& collectives) {
  std::lock_guard guard(lock_);
  for (const auto& [name, more] : collectives) {
    Collective& counted = collectives_[name];
    counted.calls += more.calls;
    counted.bytes += more.bytes;
  }
}

Collectives Metrics::collectives() const {
  std::lock_guard guard(lock_);
  return collectives_;
}

void Metrics::count_sync(const char* cause) {
  std::lock_guard guard(lock_);
  auto it = causes_.find(std::string_view(cause));
  if (it == causes_.end()) it = causes_.emplace(cause, 0).first;
  it->second++;
}

uint64_t Metrics::syncs() const {
  std::lock_guard guard(lock_);
  uint64_t total = 0;
  for (const auto& [cause, count] : causes_) total += count;
  return total;
}

std::map<std::string, uint64_t> Metrics::syncs_by_cause() const {
  std::lock_guard guard(lock_);
  return {causes_.begin(), causes_.end()};
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t process_cpu_ns() {
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return spent.tv_sec * int64_t{1'000'000'000} + spent.tv_nsec;
}

}  // namespace tpjrt::engine
