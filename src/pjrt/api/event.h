// A PJRT_Event: something the runtime will have done, or failed to do.
//
// Owns the handle. Destroying an Event neither waits nor cancels what was registered with on_ready. Movable; one Event
// is used by one thread at a time.
#pragma once

#include <functional>
#include <optional>

#include "pjrt/api/api.h"

namespace tpjrt::pjrt {

// Called about every 50 ms by each thread that waits for an event, in that thread; it may throw, which ends the wait and
// leaves the event as it is. For signals: a wait can last as long as a program. None by default.
using WaitHook = void (*)();
void install_wait_hook(WaitHook hook);
WaitHook wait_hook();

class Event {
 public:
  // Takes ownership of `event`. `api` outlives everything. A null event counts as ready: some plugins give none for
  // work that was done at once.
  Event(const Api& api, PJRT_Event* event) : api_(&api), event_(event) {}
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  // Blocks until it is ready. Throws what went wrong, as Error, or what the wait hook throws, if it is asked.
  void await(bool interruptible = true) const;
  // Has it happened, well or badly?
  bool is_ready() const;
  // What went wrong; nothing where it went well, or has not happened yet.
  std::optional<Error> failure() const;
  // Runs `callback` once, when the event is ready, well or badly: at once, on this thread, if it is ready by now; else
  // on a thread of the runtime's. `callback` must not throw. If this throws, `callback` was not run and is as it was.
  void on_ready(std::function<void()>&& callback) const;

 private:
  void await_briefly() const;

  const Api* api_;
  PJRT_Event* event_;
};

}  // namespace tpjrt::pjrt
