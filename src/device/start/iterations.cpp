// The process's beginning of a step, and whether the thread makes optimizer state.
#include "device/start/iterations.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "device/services/engine.h"
#include "device/services/modes.h"
#include "device/services/python_hooks.h"

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
  if (nbytes >= kLeastBytes && may_end_iteration()) end_iteration_at_transfer();
}

void end_iteration_before_read(const graph::StorageSlot& slot) {
  if (!may_end_iteration()) return;
  {
    std::lock_guard lock(graph::graph_lock());
    if (!slot.value().is_leaf() || !graph::any_pending()) return;  // the read itself runs pending work
  }
  end_iteration_at_transfer();
}

void end_iteration_before_backward() {
  if (!may_end_iteration()) return;
  std::vector<graph::Value> large;
  {
    std::lock_guard lock(graph::graph_lock());
    large = graph::pending(graph::kEver, graph::kLarge);
  }
  if (large.empty()) return;
  if (const auto last = pass(place_source())) {
    engine().start(kCause, graph::kEver, {.nodes = graph::kLarge.nodes, .begun = *last});
  }
}

void end_iteration_after_step() {
  if (!may_end_iteration()) return;
  static uint64_t last = 0;
  const uint64_t since = std::exchange(last, newest_id());
  if (since != 0) engine().start("pending beside an optimizer step", since, kMuch);
}

namespace {

thread_local int backwards = 0;

bool on_device(const at::Tensor& root) {
  return root.defined() && root.device().type() == c10::DeviceType::PrivateUse1;
}

}  // namespace

Backward::Backward(c10::ArrayRef<at::Tensor> roots)
    : was_multithreaded_(c10::AutogradState::get_tls_state().get_multithreading_enabled()) {
  if (!in_backward()) end_iteration_before_backward();
  ++backwards;
  if (std::any_of(roots.begin(), roots.end(), &on_device)) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
}

Backward::~Backward() {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(was_multithreaded_);
  --backwards;
}

bool in_backward() { return backwards > 0; }

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
