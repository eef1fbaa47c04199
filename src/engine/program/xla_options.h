// What clients are created with and programs are compiled with: by plugin, by platform, and by the environment.
#pragma once

#include <string>

#include "ops/rule/target.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

// One plugin that may serve the device.
struct PluginChoice {
  std::string name, path;
};

bool is_cpu_plugin(const PluginChoice& plugin);
bool is_cuda_plugin(const PluginChoice& plugin);
bool is_gpu_plugin(const PluginChoice& plugin);
pjrt::Options client_options(const PluginChoice& plugin);

bool is_cpu(const pjrt::Client& client);

struct Traits {                 // of a program, which XLA:CPU is told of
  bool small = false;           // no kernel of it is worth several threads
  bool older_emitters = false;  // Note [Emitters] in engine/session/programs.cpp
};
// `spans_processes`: of the client (Client::spans_processes).
pjrt::CompileOptions compile_options(ops::Target target, int device_ordinal, Traits traits,
                                     bool spans_processes = false);
// Of a client that several processes have together: which of the host's GPUs is this one's. Taken out of the options, where they
// say it.
int64_t own_gpu(pjrt::Options& options, const pjrt::Node& node);

}  // namespace tpjrt::engine
