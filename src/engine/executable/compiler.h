// Makes a program's text an executable: from the disk cache if it was compiled before, otherwise by the plugin.
//
// Every program is made here, however it was recorded. Thread-safe.
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

// Whether a caller waits for the compile, can interrupt it and sees its progress.
enum class Compiling : uint8_t { kAwaited, kInBackground };

class Compiler {
 public:
  // Reads the environment. Warnings of the disk cache become torch warnings.
  Compiler();
  // Compiles. `ops`: the size of the graph, for the progress line. Throws pjrt::Error if the plugin rejects the
  // program. With kAwaited it returns nothing once `enough` returns true (compile_interruptibly).
  CompiledText compile(pjrt::Client& client, const std::string& stablehlo, const pjrt::CompileOptions& options,
                       size_t ops, Compiling compiling, const std::function<bool()>& enough);
  // Returns true if a process has marked this graph as amortized. `graph`: text that identifies it in all processes.
  bool is_amortized(const pjrt::Client& client, const std::string& graph);
  void set_amortized(const pjrt::Client& client, const std::string& graph);

 private:
  disk::Executables stored_;
};

}  // namespace tpjrt::engine
