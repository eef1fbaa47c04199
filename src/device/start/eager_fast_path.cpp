// A thread's interval between reads: how many calls it has had, and whether they run.
#include "device/start/eager_fast_path.h"

#include <c10/util/ScopeExit.h>

#include <atomic>
#include <utility>

#include "device/services/mechanisms.h"
#include "device/services/modes.h"
#include "device/start/eager.h"
#include "device/tensor/access.h"
#include "device/tensor/seal.h"

namespace tpjrt::device {

namespace {

constexpr uint8_t kLeastReads = 8;
constexpr uint32_t kMostCalls = 3;

struct Interval {
  graph::SignaturePtr first = nullptr;
  uint32_t calls = 0, ran = 0;
  bool eager_calls = false;
};
thread_local Interval interval;
std::atomic<uint32_t> policies = 0;  // how often a policy was set

}  // namespace

bool begins_interval() { return interval.first == nullptr; }

bool begin_call(graph::SignaturePtr signature) {
  Interval& s = interval;
  if (!s.first) {
    const uint32_t policy = policies;
    if (std::exchange(signature->intervals_of, policy) != policy) signature->short_intervals = 0;
    s = {signature, 0, 0, signature->short_intervals >= kLeastReads && is_on(Mechanism::kEagerFastPath)};
  }
  if (++s.calls > kMostCalls) {
    s.eager_calls = false;
    s.first->short_intervals = 0;
  }
  return s.eager_calls;
}

bool may_run_eagerly() { return !eager() && !tracing() && !stays_lazy() && !seal() && !WriteWatcher::is_there(); }

bool run_unlocked(std::unique_lock<std::mutex>& lock, c10::function_ref<bool()> run) {
  lock.unlock();
  const auto relock = c10::make_scope_exit([&lock] { lock.lock(); });
  const bool ran = run();
  interval.ran += ran;
  return ran;
}

uint32_t end_interval() {
  const Interval ended = std::exchange(interval, {});
  const bool is_short = ended.first && ended.calls <= kMostCalls;
  if (is_short && ended.first->short_intervals < kLeastReads) ++ended.first->short_intervals;
  return ended.ran;
}

void forget_intervals() {
  ++policies;
  interval = {};
}

}  // namespace tpjrt::device
