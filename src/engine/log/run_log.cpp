// Records what was run.
#include "engine/log/run_log.h"

#include <chrono>
#include <utility>

namespace tpjrt::engine {

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int64_t bytes_of(const std::vector<graph::TypePtr>& types) {
  int64_t bytes = 0;
  for (const graph::TypePtr type : types) bytes += static_cast<int64_t>(type->nbytes());
  return bytes;
}

}  // namespace

void RunLog::start() { listeners_++; }

void RunLog::stop() {
  if (--listeners_ > 0) return;
  std::lock_guard guard(lock_);
  entries_.clear();
  making_.clear();
}

void RunLog::made(const Program& program, Making making) {
  std::lock_guard guard(lock_);
  making_[program.serial] = std::move(making);
}

void RunLog::ran(const Program& program, const char* cause, device::Location where, int64_t execute_ns,
                 int64_t copied_bytes, std::optional<Work> work, int64_t cpu_ns) {
  const graph::DecodedGraph decoded = graph::decode_fingerprint(program.fingerprint);
  GraphRun run;
  run.when = now();
  run.graph = program.serial;
  run.cause = cause;
  run.where = std::move(where);
  run.nodes = decoded.calls.size();
  run.arguments = decoded.leaves.size();
  run.results = program.result_types.size();
  run.argument_bytes = bytes_of(decoded.leaves);
  run.result_bytes = bytes_of(program.result_types);
  run.copied_bytes = copied_bytes;
  run.execute_seconds = static_cast<double>(execute_ns) * 1e-9;
  run.interpreted = program.interpreted;
  run.work = work;
  run.cpu_seconds = static_cast<double>(cpu_ns) * 1e-9;
  std::lock_guard guard(lock_);
  if (const auto it = making_.find(program.serial); it != making_.end()) {
    run.making = std::move(it->second);
    making_.erase(it);
  }
  entries_.emplace_back(std::move(run));
}

void RunLog::ran_on_host(const std::string& op, const char* reason) {
  HostCall call{now(), op, reason, device::user_location()};
  std::lock_guard guard(lock_);
  entries_.emplace_back(std::move(call));
}

std::vector<LogEntry> RunLog::take() {
  std::lock_guard guard(lock_);
  return std::exchange(entries_, {});
}

}  // namespace tpjrt::engine
