// Runs a program once. Syncs and compiled calls both start executables here, and nowhere else.
//
// The work that was started on a device and may be unfinished, and moments in its order.
//
// A plugin may run independent programs of a device at the same time. So "everything before this moment is done"
// depends on each of them.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "device/services/engine.h"
#include "engine/executable/program.h"
#include "engine/session/failures.h"
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

class Session;

// Inputs and outputs of one run of a program. The caller fills it; for one thread.
struct Launch {
  std::vector<const pjrt::Buffer*> arguments;
  std::vector<int64_t> kept;                 // indices of arguments that must not be donated
  std::vector<const pjrt::Buffer*> donated;  // device memory that the program takes over
  std::vector<c10::Stream> lenders;          // streams of CUDA arguments, which wait for the program
  std::vector<std::shared_ptr<pjrt::Buffer>> results;
  // The run that the program's assertions belong to; null: one of its own.
  std::shared_ptr<RunChecks> run;

  void clear();
  void add_lender(const std::optional<c10::Stream>& stream);
};

// When launch() returns. kReady: results are complete, and failures of the running program are thrown.
enum class Until : uint8_t { kStarted, kReady };

// Runs the program. If it can't run, throws with the op and the user's line that need the most memory, and with
// `consequence`, a sentence. Arguments may be lost then.
void launch(Session& session, const Program& program, Launch& launch, Until until, std::string_view consequence);

}  // namespace tpjrt::engine
