// A PJRT_Event: something the runtime will have done, or failed to do.
//
// Owns the handle. Destroying an Event neither waits nor cancels what was registered with on_ready. Movable; one Event
// is used by one thread at a time.
#pragma once

#include <functional>

#include "pjrt/api.h"

namespace tpjrt::pjrt {

class Event {
 public:
  // Takes ownership of `event`. `api` outlives everything. A null event counts as ready: some plugins give none for
  // work that was done at once.
  Event(const Api& api, PJRT_Event* event) : api_(&api), event_(event) {}
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  // Blocks until it is ready. Throws what went wrong, as Error.
  void await() const;
  // Has it happened, well or badly?
  bool is_ready() const;
  // Runs `callback` once, when the event is ready, well or badly: at once, on this thread, if it is ready by now; else
  // on a thread of the runtime's. `callback` must not throw. If this throws, `callback` was not run and is as it was.
  void on_ready(std::function<void()>&& callback) const;

 private:
  const Api* api_;
  PJRT_Event* event_;
};

}  // namespace tpjrt::pjrt
