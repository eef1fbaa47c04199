// Moments: waiting for several executions, and when the last of them ended.
#include "engine/queue.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace tpjrt::engine {
namespace {

using Events = std::vector<std::shared_ptr<const pjrt::Event>>;

class MomentOfQueue final : public device::Moment {
 public:
  explicit MomentOfQueue(Events events) : events_(std::move(events)) {
    for (const auto& event : events_) {
      event->on_ready([state = state_] { state->finish_one(); });
    }
    state_->finish_one();
  }

  bool reached() const override { return state_->left == 0; }

  void wait() const override {
    std::exception_ptr first;
    for (const auto& event : events_) {
      try {
        event->await();
      } catch (const pjrt::Error&) {
        if (!first) first = std::current_exception();
      }
    }
    while (!reached()) std::this_thread::yield();  // the runtime's thread is about to say so
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

  Events events_;
  std::shared_ptr<State> state_ = std::make_shared<State>(events_.size());
};

}  // namespace

void Queue::push(pjrt::Event done) {
  auto event = std::make_shared<const pjrt::Event>(std::move(done));
  const std::lock_guard guard(lock_);
  while (!running_.empty() && running_.front()->is_ready()) running_.pop_front();
  running_.push_back(std::move(event));
}

std::shared_ptr<device::Moment> Queue::now() {
  Events events;
  {
    const std::lock_guard guard(lock_);
    events.assign(running_.begin(), running_.end());  // what failed since the last moment included
    std::erase_if(running_, [](const auto& event) { return event->is_ready(); });
  }
  return std::make_shared<MomentOfQueue>(std::move(events));
}

}  // namespace tpjrt::engine
