// Executables on disk: what one is known by, and how it is stored and loaded.
//
// Note [Programs on disk]: an executable is found by its program's text, its options, and everything else that it depends
// on: the plugin, the platform, the processor. May be used from any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "disk/disk_cache.h"
#include "disk/warning.h"
#include "pjrt/client.h"

namespace tpjrt::disk {

class Executables {
 public:
  // Reads the environment. `warning`: who tells the user from now on.
  explicit Executables(Warning warning = nullptr);

  bool is_on() const { return disk_.is_on(); }
  // Of a program; "" where nothing is kept.
  std::string key(const pjrt::Client& client, const std::string& stablehlo, const pjrt::CompileOptions& options);
  // Null where there is none, or the plugin refuses it.
  std::shared_ptr<pjrt::Executable> load(pjrt::Client& client, const std::string& key,
                                         const pjrt::CompileOptions& options);
  void keep(const std::string& key, const pjrt::Executable& executable);
  // The three in one, past the plugin's compiler.
  std::shared_ptr<pjrt::Executable> compile(pjrt::Client& client, const std::string& stablehlo,
                                            const pjrt::CompileOptions& options, bool& from_disk);

  // Notes: what was said of a text before, by this or another process in the same circumstances.
  bool is_noted(const pjrt::Client& client, const std::string& text);
  void note(const pjrt::Client& client, const std::string& text);

 private:
  std::string described(const pjrt::Client& client);

  DiskCache disk_;
  std::mutex lock_;
  const pjrt::Client* described_ = nullptr;  // under lock_: the client that description_ is of
  std::string description_;                  // under lock_
};

}  // namespace tpjrt::disk
