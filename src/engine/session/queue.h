// What was started on a device and may not be done yet, and moments in that order.
//
// A device runs what it is given by itself; a plugin may run programs that have nothing to do with each other at the
// same time. So "everything before this moment is done" is a question about each of them.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "device/services/engine.h"
#include "engine/session/out_of_memory.h"
#include "pjrt/api/event.h"

namespace tpjrt::engine {

// One device's. May be used from any thread.
class Queue {
 public:
  explicit Queue(c10::DeviceIndex device) : device_(device) {}
  // Something was started; `done` becomes ready when it is over, well or badly. `origin`: whom to name where it lacks
  // memory; may be null.
  void push(pjrt::Event done, std::shared_ptr<const LargestResult> origin);
  // This moment: reached when all that was pushed before is over.
  std::shared_ptr<device::Moment> now();
  // Somebody is being told that a program lacked memory: gives the origin of the first that did (null: none is known),
  // and forgets all that did, so that nobody is told again by waiting.
  std::shared_ptr<const LargestResult> tell_of_lacking();

  struct Started {
    std::shared_ptr<const pjrt::Event> done;
    std::shared_ptr<const LargestResult> origin;
  };

 private:
  c10::DeviceIndex device_;
  std::mutex lock_;
  std::deque<Started> running_;
  std::deque<Started> failed_;  // since the last moment; the latest kMostFailed
};

}  // namespace tpjrt::engine
