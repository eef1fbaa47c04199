// Lines about a compile that takes long: on the terminal while it does, and for everybody when a step has waited for it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tpjrt::engine {

// While it lives, and from the second second on, stderr shows "torch_pjrt: compiling a graph of 1200 ops, 5 s"; at the end
// the line is removed. Only where stderr is a terminal. TORCH_PJRT_PROGRESS says after how many seconds; 0: never.
class CompileProgress {
 public:
  explicit CompileProgress(size_t ops);
  ~CompileProgress();
  CompileProgress(const CompileProgress&) = delete;
  CompileProgress& operator=(const CompileProgress&) = delete;

 private:
  struct Line;
  std::unique_ptr<Line> line_;
};

// A step waited for a program of so many calls. Told of where that took as long as TORCH_PJRT_PROGRESS says:
// "waited 3.4 s for a graph of 314 ops (train.py:30)", with the line that this thread is at.
struct Wait {
  double seconds;
  size_t ops;
};
// Installed by the Python room. It takes the GIL and calls the program's own handlers of its log, which may sync: no lock
// is held.
using WaitListener = void (*)(const std::string& line);
void install_wait_listener(WaitListener listener);
void tell_of(const Wait& wait);

}  // namespace tpjrt::engine
