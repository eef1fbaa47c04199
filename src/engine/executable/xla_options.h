// Options of clients and programs, by plugin, platform and environment.
#pragma once

#include <cstdint>
#include <string>

#include "ops/rule/backend_lowerings.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

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

}  // namespace tpjrt::engine
