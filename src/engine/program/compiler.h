// From a program's text to an executable: from disk where it was compiled before, else by the plugin.
//
// Every program that is run is made here, whichever way it was recorded. May be used from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "disk/executables.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

struct CompiledText {
  std::shared_ptr<pjrt::Executable> executable;
  bool from_disk = false;
};

// Whether somebody waits for it, and may interrupt it and be shown its progress.
enum class Compiling : uint8_t { kAwaited, kInBackground };

class Compiler {
 public:
  // Reads the environment. What the disk warns of is a warning of torch's.
  Compiler();
  // `ops`: the size of the graph, for the progress line. Throws pjrt::Error where the plugin refuses the program. Awaited, it
  // gives nothing once `enough` is true (compile_interruptibly).
  CompiledText compile(pjrt::Client& client, const std::string& stablehlo, const pjrt::CompileOptions& options,
                       size_t ops, Compiling compiling, const std::function<bool()>& enough);
  // Did a process say so of this graph? `graph`: any text that tells it, the same in all processes.
  bool is_paid(const pjrt::Client& client, const std::string& graph);
  void set_paid(const pjrt::Client& client, const std::string& graph);

 private:
  disk::Executables stored_;
};

}  // namespace tpjrt::engine
