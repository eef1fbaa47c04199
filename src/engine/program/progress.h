// A line on the terminal while something takes long.
#pragma once

#include <cstddef>
#include <memory>

namespace tpjrt::engine {

// While it lives, and from the third second on, stderr shows "torch_pjrt: compiling a graph of 1200 ops, 5 s"; at the end
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

}  // namespace tpjrt::engine
