// How calls are taken: strictly, as part of a trace, recorded only, or outlined.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace tpjrt::device {

// Is it an error that an op runs on the host? For the whole process; TORCH_PJRT_STRICT=1 at the start.
bool strict();
void set_strict(bool on);

// While a function is traced on placeholders (in this thread) nothing runs on the host: it raises.
bool tracing();
void set_tracing(bool on);

// While one lives, this thread's calls are recorded only: they are traced, not meant to run.
class StaysLazy {
 public:
  StaysLazy();
  ~StaysLazy();
  StaysLazy(const StaysLazy&) = delete;
  StaysLazy& operator=(const StaysLazy&) = delete;
};
bool stays_lazy();  // in this thread

// While one lives, `op` is outlined on this thread (meta.h): the calls that its kernel makes are not recorded.
class Outlining {
 public:
  explicit Outlining(const c10::OperatorHandle& op);
  ~Outlining();
  Outlining(const Outlining&) = delete;
  Outlining& operator=(const Outlining&) = delete;

 private:
  const c10::OperatorHandle* outer_;
};
const c10::OperatorHandle* outlined();  // null: none is
inline bool outlining() { return outlined() != nullptr; }

}  // namespace tpjrt::device
