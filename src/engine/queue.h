// What was started on a device and may not be done yet, and moments in that order.
//
// A device runs what it is given by itself; a plugin may run programs that have nothing to do with each other at the
// same time. So "everything before this moment is done" is a question about each of them.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "device/engine.h"
#include "pjrt/event.h"

namespace tpjrt::engine {

// One device's. May be used from any thread.
class Queue {
 public:
  // Something was started; `done` becomes ready when it is over, well or badly.
  void push(pjrt::Event done);
  // This moment: reached when all that was pushed before is over.
  std::shared_ptr<device::Moment> now();

 private:
  std::mutex lock_;
  std::deque<std::shared_ptr<const pjrt::Event>> running_;
};

}  // namespace tpjrt::engine
