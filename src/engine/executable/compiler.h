// Makes a program's text an executable: from the disk cache if it was compiled before, otherwise by the plugin.
//
// Every program is made here, however it was recorded. Thread-safe.
//
// Options of clients and programs, by plugin, platform and environment.
//
// Statistics of collectives.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "disk/executables.h"
#include "ops/rule/backend_lowerings.h"
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

// A plugin that may serve the device.
struct PluginChoice {
  std::string name, path;
};

bool is_cpu_plugin(const PluginChoice& plugin);
bool is_cuda_plugin(const PluginChoice& plugin);
bool is_gpu_plugin(const PluginChoice& plugin);
pjrt::Options client_options(const PluginChoice& plugin);

bool is_cpu(const pjrt::Client& client);

struct Traits {                 // of a program, for XLA:CPU
  bool small = false;           // no kernel is worth several threads
  bool older_emitters = false;  // Note [Emitters] in engine/session/program_table.cpp
};
// Returns a program's options. `spans_processes`: Client::spans_processes.
pjrt::CompileOptions compile_options(ops::Target target, int device_ordinal, Traits traits,
                                     bool spans_processes = false);
// Returns which of the host's GPUs a client that spans processes uses in this process. Removes the option that says so.
int64_t own_gpu(pjrt::Options& options, const pjrt::Node& node);

// The number of collectives of one kind, and the bytes that each rank contributed.
struct Collective {
  uint64_t calls = 0, bytes = 0;
};
using Collectives = std::map<std::string, Collective>;  // by kind, such as "all_reduce"

}  // namespace tpjrt::engine
