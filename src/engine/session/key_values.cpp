// Waits by polling, because the store's own wait would block other threads.
#include "engine/session/key_values.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/process_group/late_ranks.h"
#include "device/services/python_hooks.h"
#include "pjrt/api/api.h"

namespace tpjrt::engine {
namespace {

thread_local std::exception_ptr raised;

class Stored final : public pjrt::KeyValueStore {
 public:
  explicit Stored(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void put(const std::string& key, const std::string& value) override { store_->set(named(key), value); }

  std::optional<std::string> try_get(const std::string& key) override {
    const std::string name = named(key);
    if (!store_->check({name})) return std::nullopt;
    const std::vector<uint8_t> bytes = store_->get(name);
    return std::string(bytes.begin(), bytes.end());
  }

  // A wait would hold the store's only connection, and delay another thread's put that somebody may be waiting for.
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    using std::chrono::steady_clock, std::chrono::milliseconds;
    const auto end = steady_clock::now() + timeout;
    for (milliseconds pause{1};; pause = std::min(2 * pause, milliseconds{50})) {
      if (auto value = try_get(key)) return *value;
      listen(key);
      if (steady_clock::now() >= end) {
        throw pjrt::Error(pjrt::ErrorCode::kDeadlineExceeded, "key-value store",
                          "no process has put '" + key + "' within " + std::to_string(timeout.count()) + " ms");
      }
      std::this_thread::sleep_for(pause);
    }
  }

  void end_waits() { is_over_ = true; }

 private:
  // Only the store's own exceptions may pass through the plugin's code.
  void listen(const std::string& key) const {
    try {
      if (device::WaitForRanks* wait = device::WaitForRanks::current()) {
        wait->go_on();
      } else {
        device::check_signals();
      }
    } catch (...) {
      raised = std::current_exception();
    }
    if (raised || is_over_) {
      throw pjrt::Error(pjrt::ErrorCode::kCancelled, "key-value store", "the wait for '" + key + "' was interrupted");
    }
  }

  static std::string named(const std::string& key) { return "pjrt/" + key; }

  c10::intrusive_ptr<c10d::Store> store_;
  std::atomic<bool> is_over_{false};
};

}  // namespace

std::shared_ptr<pjrt::KeyValueStore> key_values_in(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_shared<Stored>(std::move(store));
}

void end_waits(pjrt::KeyValueStore& store) { dynamic_cast<Stored&>(store).end_waits(); }

void rethrow_interrupt() {
  if (const std::exception_ptr thrown = std::exchange(raised, nullptr)) std::rethrow_exception(thrown);
}

}  // namespace tpjrt::engine
