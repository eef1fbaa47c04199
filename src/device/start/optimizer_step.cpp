// The process's beginning of a step, and whether the thread makes optimizer state.
#include "device/start/optimizer_step.h"

#include <atomic>
#include <limits>
#include <mutex>

namespace tpjrt::device {

namespace {

thread_local bool makes_state = false;
std::atomic<uint64_t> began = std::numeric_limits<uint64_t>::max();  // the newest call before the step

}  // namespace

void begin_optimizer_step(bool first) {
  makes_state = first;
  std::lock_guard lock(graph::graph_lock());
  began = graph::newest_id();
}

void end_optimizer_step() {
  makes_state = false;
  began = std::numeric_limits<uint64_t>::max();
}

bool makes_optimizer_state() { return makes_state; }

bool in_optimizer_step(const graph::Node& node) { return node.id > began.load(std::memory_order_relaxed); }

}  // namespace tpjrt::device
