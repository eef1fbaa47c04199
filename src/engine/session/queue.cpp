// Moments: wait for several executions, and find the end of the last.
#include "engine/session/queue.h"

#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace tpjrt::engine {

namespace {

using Events = std::vector<Queue::Started>;

constexpr size_t kMostFailed = 64;

class MomentOfQueue final : public device::Moment {
 public:
  MomentOfQueue(Events events, c10::DeviceIndex device) : events_(std::move(events)), device_(device) {
    for (const auto& event : events_) {
      event.done->on_ready([state = state_] { state->finish_one(); });
    }
    state_->finish_one();
  }

  bool reached() const override { return state_->left == 0; }

  void wait() const override {
    std::exception_ptr first;
    for (const auto& event : events_) {
      const std::exception_ptr failure = await(event);
      if (!first) first = failure;
    }
    while (!reached()) std::this_thread::yield();  // the runtime's thread is about to signal it
    if (first) std::rethrow_exception(first);
  }

  int64_t reached_at_ns() const override { return state_->reached_at_ns; }

 private:
  struct State {
    void finish_one() {
      reached_at_ns =
          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
              .count();
      --left;
    }
    explicit State(size_t events) : left(events + 1) {}
    std::atomic<size_t> left;
    std::atomic<int64_t> reached_at_ns{0};
  };

  // Returns the plugin's exception. An exception of the wait hook ends the wait.
  std::exception_ptr await(const Queue::Started& started) const {
    try {
      try {
        started.done->await();
      } catch (const pjrt::Error& error) {
        raise_out_of_memory(error, device_, started.origin.get());
        throw;
      }
    } catch (const pjrt::Error&) {
      return std::current_exception();
    } catch (const c10::OutOfMemoryError&) {
      return std::current_exception();
    }
    return nullptr;
  }

  Events events_;
  c10::DeviceIndex device_;
  std::shared_ptr<State> state_ = std::make_shared<State>(events_.size());
};

}  // namespace

void Queue::push(pjrt::Event done, std::shared_ptr<const LargestResult> origin) {
  auto event = std::make_shared<const pjrt::Event>(std::move(done));
  const std::lock_guard guard(lock_);
  while (!running_.empty() && running_.front().done->is_ready()) {
    if (running_.front().done->failure()) failed_.push_back(std::move(running_.front()));
    running_.pop_front();
  }
  if (failed_.size() > kMostFailed) failed_.pop_front();
  running_.push_back({std::move(event), std::move(origin)});
}

std::shared_ptr<device::Moment> Queue::now() {
  Events events;
  {
    const std::lock_guard guard(lock_);
    events.assign(failed_.begin(), failed_.end());
    events.insert(events.end(), running_.begin(), running_.end());
    failed_.clear();
    std::erase_if(running_, [](const auto& started) { return started.done->is_ready(); });
  }
  return std::make_shared<MomentOfQueue>(std::move(events), device_);
}

void Queue::await_lacking() {
  Events running;
  {
    const std::lock_guard guard(lock_);
    running.assign(running_.begin(), running_.end());
  }
  for (const auto& started : running) {
    try {
      started.done->await();
    } catch (const pjrt::Error& error) {
      if (error.is_out_of_memory()) return;
    }
  }
}

std::shared_ptr<const LargestResult> Queue::report_lacking() {
  std::shared_ptr<const LargestResult> first;
  const auto is_reported = [&](const Started& started) {
    const auto failure = started.done->failure();
    if (!failure || !failure->is_out_of_memory()) return false;
    if (!first) first = started.origin;
    return true;
  };
  const std::lock_guard guard(lock_);
  std::erase_if(failed_, is_reported);
  std::erase_if(running_, is_reported);
  return first;
}

}  // namespace tpjrt::engine
