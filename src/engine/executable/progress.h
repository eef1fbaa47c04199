// Reports of long compiles: a line on the terminal while they run, and a log line when a step has waited for one.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tpjrt::engine {

// While it lives, starting with the second second, stderr shows "torch_pjrt: compiling a graph of 1200 ops, 5 s". The
// line is removed at the end. Does nothing if stderr is no terminal. TORCH_PJRT_COMPILE_LOG_SECONDS sets the delay in seconds; 0:
// never.
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

// A step's wait for a program of `ops` calls. Reported if it took at least TORCH_PJRT_COMPILE_LOG_SECONDS seconds: "waited 3.4 s
// for a graph of 314 ops (train.py:30)", with this thread's current line.
struct Wait {
  double seconds;
  size_t ops;
};
// Installed by the Python room. It takes the GIL and calls the user's log handlers, which may sync, so no lock may be
// held.
using WaitListener = void (*)(const std::string& line);
void install_wait_listener(WaitListener listener);
void report(const Wait& wait);

}  // namespace tpjrt::engine
