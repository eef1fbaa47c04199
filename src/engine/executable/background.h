// Compiles that run in the background.
//
// Compiles that may be unfinished when the process exits.
#pragma once

#include <functional>
#include <memory>

#include "engine/executable/compiler.h"

namespace tpjrt::engine {

// Runs `work` on low-priority threads, TORCH_PJRT_COMPILE_THREADS of them (default: 1).
class BackgroundCompile {
 public:
  explicit BackgroundCompile(std::function<CompiledText()> work);
  // Returns true if the work has ended, successfully or not.
  bool is_done() const;
  // Waits for the result, and throws what the work threw. If no thread has begun the work, or none has finished it
  // after 50 ms, the caller's thread runs `instead`: the same work at normal priority, with progress on the terminal.
  // Low-priority threads may get no processor beside other work, and only root can raise their priority again. The
  // result that is finished first counts. If that is not `instead`, `instead` returns nothing once `enough` returns
  // true. The wait can be interrupted like pjrt::Event::await; the work then goes on, and its result may be asked for
  // again.
  using Enough = std::function<bool()>;
  CompiledText result(const std::function<CompiledText(const Enough& enough)>& instead);

 private:
  struct Task;
  std::shared_ptr<Task> task_;
};

// Counts a compile, on any thread, while it lives. Once the process exits, the constructor blocks forever, so that no
// compile begins.
class Unfinished {
 public:
  Unfinished();
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
};

// From now on a process that exits during a compile skips static destructors, which would destroy the compiler under
// its thread. Exit handlers run in reverse order of registration, and the plugin registers its own during its first
// compile: so this is called before that, after that, and when the interpreter ends.
void end_despite_unfinished();

}  // namespace tpjrt::engine
