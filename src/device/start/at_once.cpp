// See Note [At once].
#include "device/start/at_once.h"

#include <c10/util/ScopeExit.h>

#include <atomic>
#include <utility>

#include "device/services/modes.h"
#include "device/start/eager.h"
#include "device/tensor/access.h"
#include "device/tensor/seal.h"

namespace tpjrt::device {
namespace {

constexpr uint8_t kLeastReads = 8;
constexpr uint32_t kMostCalls = 8;

struct Stretch {
  graph::SignaturePtr first = nullptr;
  uint32_t calls = 0, ran = 0;
  bool at_once = false;
};
thread_local Stretch stretch;
std::atomic<uint32_t> policies = 0;  // how often a policy was set

}  // namespace

bool begins_stretch() { return stretch.first == nullptr; }

bool call_of_stretch(graph::SignaturePtr signature) {
  Stretch& s = stretch;
  if (!s.first) {
    const uint32_t policy = policies;
    if (std::exchange(signature->stretches_of, policy) != policy) signature->short_stretches = 0;
    s = {signature, 0, 0, signature->short_stretches >= kLeastReads};
  }
  if (++s.calls > kMostCalls) {
    s.at_once = false;
    s.first->short_stretches = 0;
  }
  return s.at_once;
}

bool may_run_at_once() { return !eager() && !tracing() && !stays_lazy() && !seal() && !WriteWatcher::is_there(); }

bool run_unlocked(std::unique_lock<std::mutex>& lock, c10::function_ref<bool()> run) {
  lock.unlock();
  const auto relock = c10::make_scope_exit([&lock] { lock.lock(); });
  const bool ran = run();
  stretch.ran += ran;
  return ran;
}

uint32_t end_stretch() {
  const Stretch ended = std::exchange(stretch, {});
  const bool is_short = ended.first && ended.calls <= kMostCalls;
  if (is_short && ended.first->short_stretches < kLeastReads) ++ended.first->short_stretches;
  return ended.ran;
}

void forget_stretches() {
  ++policies;
  stretch = {};
}

}  // namespace tpjrt::device
