// Compiles that nobody waits for yet.
#pragma once

#include <functional>
#include <memory>

#include "engine/program/compiler.h"

namespace tpjrt::engine {

// `work` as a task for threads of a low priority, TORCH_PJRT_COMPILE_THREADS of them (default: 1).
class BackgroundCompile {
 public:
  explicit BackgroundCompile(std::function<CompiledText()> work);
  // Whether it is done, well or badly.
  bool is_done() const;
  // Waits for it, and throws what it threw. Where no thread has begun it, or none has done it 50 ms later, `instead` is called
  // here: the same work at the caller's priority, told of on the terminal. A thread of a low one may get no processor beside
  // other work, and nobody but root can raise it again. What is done first counts: where it isn't `instead`, that gives
  // nothing once `enough` says so. The wait can be interrupted as pjrt::Event::await can; then it goes on, and may be asked
  // again.
  using Enough = std::function<bool()>;
  CompiledText result(const std::function<CompiledText(const Enough& enough)>& instead);

 private:
  struct Task;
  std::shared_ptr<Task> task_;
};

}  // namespace tpjrt::engine
