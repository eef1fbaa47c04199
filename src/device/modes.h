// How calls are taken: strictly, as part of a trace, or recorded only.
#pragma once

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

}  // namespace tpjrt::device
