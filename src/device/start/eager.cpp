// Starts long graphs that are not read.
#include "device/start/eager.h"

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <atomic>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "device/services/engine.h"
#include "device/services/modes.h"
#include "device/services/python_hooks.h"
#include "device/tensor/access.h"
#include "device/tensor/storage.h"

namespace tpjrt::device {

namespace {

constexpr uint32_t kMostNodes = 20'000;

uint32_t initial() {
  const char* value = std::getenv("TORCH_PJRT_EAGER");
  return value && *value && std::string_view(value) != "0" ? 0 : kMostNodes;
}

}  // namespace

std::atomic<uint32_t> most_nodes{initial()};

bool eager() { return most_nodes.load(std::memory_order_relaxed) == 0; }
void set_eager(bool on) { most_nodes = on ? 0 : kMostNodes; }

void start_long_graph(const at::Tensor& tensor, const std::string& op) {
  if (stays_lazy() || tracing()) return;
  if (!eager()) {
    engine().sync({&storage_of(tensor)->slot}, "a graph long without a read");
    return;
  }
  engine().sync({&storage_of(tensor)->slot}, "eager mode");
  try {
    engine().wait(*engine().now(tensor.device().index()));
  } catch (const c10::Error&) {
    throw;  // PyTorch's own: its class separates an IndexError from a LinAlgError, and its text names the op
  } catch (const std::exception& error) {
    let_interrupts_pass();
    TORCH_CHECK(false, "[", op, "] failed: ", error.what());
  }
}

namespace {

constexpr uint8_t kLeastReads = 8;
constexpr uint32_t kMostCalls = 8;

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
    s = {signature, 0, 0, signature->short_intervals >= kLeastReads};
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
