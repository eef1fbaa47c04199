// Compiles that may be unfinished when the process exits.
#pragma once

namespace tpjrt::engine {

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
