// How calls are handled: strictly, as part of a trace, recorded only, or outlined.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace tpjrt::device {

// Whether it is an error that an op runs on the host. For the whole process; initially on if TORCH_PJRT_STRICT=1.
bool strict();
void set_strict(bool on);

// Whether this thread traces a function on placeholders. While it does, an op that would run on the host throws.
bool tracing();
void set_tracing(bool on);

// While one lives, this thread's calls are only recorded, because they are traced and not meant to run.
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
