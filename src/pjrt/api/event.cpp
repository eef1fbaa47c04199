// PJRT_Event.
#include "pjrt/api/event.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace tpjrt::pjrt {
namespace {

std::atomic<WaitHook> installed_hook{nullptr};

}  // namespace

void install_wait_hook(WaitHook hook) { installed_hook = hook; }
WaitHook wait_hook() { return installed_hook; }

Event::~Event() {
  if (event_ == nullptr) return;
  TPJRT_ARGS(PJRT_Event_Destroy, args);
  args.event = event_;
  api_->call_noexcept(&PJRT_Api::PJRT_Event_Destroy, args);
}

Event::Event(Event&& other) noexcept : api_(other.api_), event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(event_, other.event_);
  return *this;
}

// A small program ends sooner than a sleeping thread wakes up.
void Event::await_briefly() const {
  if (is_ready()) return;
  constexpr std::chrono::microseconds kBriefly{50};
  const auto end = std::chrono::steady_clock::now() + kBriefly;
  while (!is_ready() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

void Event::await(bool interruptible) const {
  if (event_ == nullptr) return;
  await_briefly();
  const WaitHook hook = interruptible ? wait_hook() : nullptr;
  if (hook != nullptr && !is_ready()) {
    struct State {
      std::mutex lock;
      std::condition_variable changed;
      bool ready = false;
    };
    const auto state = std::make_shared<State>();  // shared: this thread may leave first
    on_ready([state] {
      const std::lock_guard<std::mutex> guard(state->lock);
      state->ready = true;
      state->changed.notify_one();
    });
    std::unique_lock<std::mutex> guard(state->lock);
    while (!state->changed.wait_for(guard, std::chrono::milliseconds(50), [&] { return state->ready; })) {
      guard.unlock();
      hook();
      guard.lock();
    }
  }
  TPJRT_ARGS(PJRT_Event_Await, args);
  args.event = event_;
  TPJRT_CALL(*api_, PJRT_Event_Await, args);
}

bool Event::is_ready() const {
  if (event_ == nullptr) return true;
  TPJRT_ARGS(PJRT_Event_IsReady, args);
  args.event = event_;
  TPJRT_CALL(*api_, PJRT_Event_IsReady, args);
  return args.is_ready;
}

std::optional<Error> Event::failure() const {
  if (event_ == nullptr || !is_ready()) return std::nullopt;
  TPJRT_ARGS(PJRT_Event_Error, args);
  args.event = event_;
  try {
    TPJRT_CALL(*api_, PJRT_Event_Error, args);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

void Event::on_ready(std::function<void()>&& callback) const {
  if (event_ == nullptr) return callback();
  struct Pending {
    const Api* api;
    std::function<void()> callback;
  };
  auto pending = std::make_unique<Pending>(Pending{api_, std::move(callback)});
  TPJRT_ARGS(PJRT_Event_OnReady, args);
  args.event = event_;
  args.user_arg = pending.get();
  args.callback = [](PJRT_Error* error, void* user_arg) {
    std::unique_ptr<Pending> pending(static_cast<Pending*>(user_arg));
    if (error != nullptr) pending->api->destroy(error);
    pending->callback();
  };
  try {
    TPJRT_CALL(*api_, PJRT_Event_OnReady, args);
  } catch (...) {
    callback = std::move(pending->callback);
    throw;
  }
  static_cast<void>(pending.release());  // the callback owns it, or has freed it
}

}  // namespace tpjrt::pjrt
