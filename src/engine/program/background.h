// Compiles that nobody waits for yet.
#pragma once

#include <functional>
#include <memory>

#include "engine/program/compiler.h"

namespace tpjrt::engine {

// `work` as a task for threads of the lowest priority, TORCH_PJRT_COMPILE_THREADS of them (default: 1).
class BackgroundCompile {
 public:
  explicit BackgroundCompile(std::function<CompiledText()> work);
  // Whether it is done, well or badly.
  bool is_done() const;
  // Waits for it, and throws what it threw. Where no thread has begun it, `instead` is called here: the same work, told of
  // on the terminal. The wait can be interrupted as pjrt::Event::await can; then it goes on, and may be asked again.
  CompiledText result(const std::function<CompiledText()>& instead);

 private:
  struct Task;
  std::shared_ptr<Task> task_;
};

}  // namespace tpjrt::engine
