// Compiles that run in the background.
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

}  // namespace tpjrt::engine
