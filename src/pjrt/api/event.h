// A PJRT_Event: work of the runtime that will be done or will fail.
//
// Owns the handle. Destroying an Event neither waits for the work nor cancels callbacks of on_ready. Movable; one Event
// is used by one thread at a time.
#pragma once

#include <functional>
#include <optional>

#include "pjrt/api/api.h"

namespace tpjrt::pjrt {

// Called about every 50 ms by each thread that waits for an event. It may throw, which ends the wait and leaves the
// event unchanged. It serves signals, because a wait can last as long as a program. None by default.
using WaitHook = void (*)();
void install_wait_hook(WaitHook hook);
WaitHook wait_hook();

class Event {
 public:
  // Takes ownership of `event`. `api` outlives everything. A null event counts as ready: some plugins return none for
  // work that is already done.
  Event(const Api& api, PJRT_Event* event) : api_(&api), event_(event) {}
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  // Blocks until the event is ready. Throws its failure as Error, or the exception of the wait hook if `interruptible`.
  void await(bool interruptible = true) const;
  // Returns true if the work is done or has failed.
  bool is_ready() const;
  // Returns the failure; nothing if the work succeeded or is not done yet.
  std::optional<Error> failure() const;
  // Runs `callback` once when the event is ready, successfully or not: immediately on this thread if it is ready now,
  // otherwise on a thread of the runtime. `callback` must not throw. If on_ready throws, `callback` was not run and is
  // unchanged.
  void on_ready(std::function<void()>&& callback) const;

 private:
  void await_briefly() const;

  const Api* api_;
  PJRT_Event* event_;
};

}  // namespace tpjrt::pjrt
