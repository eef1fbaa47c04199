// Compiles that a process may leave behind when it ends.
#pragma once

namespace tpjrt::engine {

// One compile that is under way, while it lives. On any thread. None begins once the process has begun to end: its thread
// stops here.
class Unfinished {
 public:
  Unfinished();
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
};

// From now on a process that ends while a compile is under way ends at once, without static destructors, which would take
// the compiler apart under that thread. Handlers are called last registered first, and the plugin registers its own while it
// compiles for the first time: so this is called before, after, and when the interpreter ends.
void end_despite_unfinished();

}  // namespace tpjrt::engine
