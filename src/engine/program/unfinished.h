// Compiles that a process may leave behind when it ends.
#pragma once

namespace tpjrt::engine {

// One compile that is under way, while it lives. On any thread.
class Unfinished {
 public:
  Unfinished();
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
};

// From now on a process that ends while a compile is under way ends at once, without static destructors, which would take
// the compiler apart under that thread.
void end_despite_unfinished();

}  // namespace tpjrt::engine
