// The work that was started on a device and may be unfinished, and moments in its order.
//
// A plugin may run independent programs of a device at the same time. So "everything before this moment is done"
// depends on each of them.
#pragma once

#include <c10/core/Device.h>

#include <deque>
#include <memory>
#include <mutex>

#include "device/services/engine.h"
#include "engine/session/out_of_memory.h"
#include "pjrt/api/event.h"

namespace tpjrt::engine {

// The queue of one device. Thread-safe.
class Queue {
 public:
  explicit Queue(c10::DeviceIndex device) : device_(device) {}
  // Adds started work; `done` becomes ready when it ends, successfully or not. `origin`: the program to name if memory
  // runs out; may be null.
  void push(pjrt::Event done, std::shared_ptr<const LargestResult> origin);
  // Returns the current moment, which is reached when all work added before has ended.
  std::shared_ptr<device::Moment> now();
  // Waits until started work has run out of memory, or all of it has ended.
  void await_lacking();
  // Called when an error about lack of memory is reported. Returns the origin of the first program that ran out of
  // memory (null: unknown), and forgets all such failures, so that a later wait doesn't report them again.
  std::shared_ptr<const LargestResult> report_lacking();

  struct Started {
    std::shared_ptr<const pjrt::Event> done;
    std::shared_ptr<const LargestResult> origin;
  };

 private:
  c10::DeviceIndex device_;
  std::mutex lock_;
  std::deque<Started> running_;
  std::deque<Started> failed_;  // since the last moment; at most kMostFailed
};

}  // namespace tpjrt::engine
