// From a program's text to an executable: from disk where it was compiled before, else by the plugin.
//
// Every program that is run is made here, whichever way it was recorded. May be used from any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "engine/program/disk_cache.h"
#include "pjrt/client.h"

namespace tpjrt::engine {

struct CompiledText {
  std::shared_ptr<pjrt::Executable> executable;
  bool from_disk = false;
};

class Compiler {
 public:
  // Reads the environment.
  Compiler();
  // `ops`: the size of the graph, for the progress line. Throws pjrt::Error where the plugin refuses the program.
  CompiledText compile(pjrt::Client& client, const std::string& stablehlo, const pjrt::CompileOptions& options,
                       size_t ops);

 private:
  std::string key(const pjrt::Client& client, const std::string& stablehlo, const pjrt::CompileOptions& options);
  void keep(const std::string& key, const pjrt::Executable& executable);

  DiskCache disk_;
  std::mutex lock_;
  const pjrt::Client* described_ = nullptr;  // under lock_: the client that description_ is of
  std::string description_;                  // under lock_
};

}  // namespace tpjrt::engine
