// The recorder: every ATen call on "pjrt" tensors that is not a view or a factory becomes a node here.
//
// A key of words describes a call (operator, operand types, attributes; numbers are separate). The first call with a
// key runs the Meta kernel and asks the engine whether the op can be lowered; the answer, a Plan, is kept for ever.
// Later calls look the plan up, make a node, and wrap or rebind storages according to the schema's alias info.
//
// One boxed kernel takes any schema. Entrances for the commonest C++ signatures (entrance.cpp) come before it, and
// save boxing the arguments of a known call.
#pragma once

#include <ATen/core/stack.h>

#include <atomic>

#include "device/aten_call/arguments.h"
#include "device/aten_call/operator.h"
#include "device/aten_call/plan.h"

namespace tpjrt::device {

// Registers the recorder as the backend's fallback, for every overload with Boxing::kRecord, and through its
// entrances.
void register_recorder();

// Records the call whose arguments end the stack, or runs it on the host. Thread-safe.
void record(const Operator& op, torch::jit::Stack& stack);

using Results = c10::SmallVector<at::Tensor, 4>;

// Adds its lifetime to a total of the time spent in recording, unless it is dropped or lives while a plan is made,
// which is timed as a whole.
class RecordTimer {
 public:
  RecordTimer();  // for a call: one in kTimedEvery is timed
  explicit RecordTimer(std::atomic<int64_t>& total) { start(total); }
  ~RecordTimer() {
    if (C10_UNLIKELY(total_)) stop();
  }
  RecordTimer(const RecordTimer&) = delete;
  RecordTimer& operator=(const RecordTimer&) = delete;
  void drop() { total_ = nullptr; }

  static inline thread_local bool in_plan = false;

 private:
  void start(std::atomic<int64_t>& total);
  void stop();

  std::atomic<int64_t>* total_ = nullptr;
  int64_t start_ = 0;
};

// Records a call that has a plan with returns of that shape (kMixed: any), and puts its new tensors into `results`.
// Returns null, and does nothing, if there is none, or if the host must run it. Thread-safe.
const Plan* record_known(const Operator& op, Arguments& arguments, Plan::Shape shape, RecordTimer& timer,
                         Results& results);

}  // namespace tpjrt::device
