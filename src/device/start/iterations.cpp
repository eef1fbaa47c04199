// The places that the main thread has passed, and the work that is started there.
#include "device/start/iterations.h"

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "device/services/engine.h"
#include "device/services/mechanisms.h"
#include "device/services/modes.h"
#include "device/services/python_hooks.h"
#include "device/start/backward.h"

namespace tpjrt::device {

namespace {

constexpr size_t kLeastBytes = 256;                            // of a batch
constexpr graph::Least kMuch{.nodes = 8, .nbytes = 1U << 20};  // for one tensor, and for all

constexpr auto kCause = "a new iteration of a loop";

PlaceSource place_source = nullptr;

uint64_t newest_id() {
  std::lock_guard lock(graph::graph_lock());
  return graph::newest_id();
}

bool may_end_iteration() { return in_main_thread() && place_source && !tracing() && !stays_lazy() && !in_backward(); }

// Returns the newest node at the time when the main thread last passed this place, if it did.
std::optional<uint64_t> pass(const Place& place) {
  static auto& passed = *new std::map<std::pair<const void*, int>, uint64_t>;
  if (!place.code) return std::nullopt;
  const uint64_t newest = newest_id();
  const auto [it, is_first] = passed.try_emplace({place.code, place.line}, newest);
  const uint64_t last = std::exchange(it->second, newest);
  return is_first ? std::nullopt : std::optional(last);
}

void end_iteration_at_transfer() {
  const Place place = place_source();
  if (place.in_module) return;
  const auto since = pass(place);
  if (since) engine().start(kCause, *since, kMuch);
}

}  // namespace

void install_place_source(PlaceSource source) { place_source = source; }

void end_iteration_before_copy(size_t nbytes) {
  if (nbytes >= kLeastBytes && is_on(Mechanism::kLoopIterations) && may_end_iteration()) end_iteration_at_transfer();
}

void end_iteration_before_read(const graph::StorageSlot& slot) {
  if (!is_on(Mechanism::kLoopIterations) || !may_end_iteration()) return;
  {
    std::lock_guard lock(graph::graph_lock());
    if (!slot.value().is_leaf() || !graph::any_pending()) return;  // the read itself runs pending work
  }
  end_iteration_at_transfer();
}

void end_iteration_after_step() {
  if (!is_on(Mechanism::kStepsBesideOptimizers) || !may_end_iteration()) return;
  static uint64_t last = 0;
  const uint64_t since = std::exchange(last, newest_id());
  if (since != 0) engine().start("pending beside an optimizer step", since, kMuch);
}

}  // namespace tpjrt::device
