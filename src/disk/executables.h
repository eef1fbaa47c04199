// Executables on disk: their keys, storing and loading.
//
// Note [Programs on disk]: an executable's key consists of its program's text, its options, and everything else that it
// depends on: the plugin, the platform, the processor. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "disk/disk_cache.h"
#include "pjrt/client.h"

namespace tpjrt::disk {

class Executables {
 public:
  // Reads the environment. `warning`: called for warnings from now on.
  explicit Executables(Warning warning = nullptr);

  bool is_on() const { return disk_.is_on(); }
  // Returns a program's key; "" if nothing is stored.
  std::string key(const pjrt::Client& client, const std::string& stablehlo, const pjrt::CompileOptions& options);
  // Returns the stored executable; null if there is none, or if the plugin rejects it.
  std::shared_ptr<pjrt::Executable> load(pjrt::Client& client, const std::string& key,
                                         const pjrt::CompileOptions& options);
  void keep(const std::string& key, const pjrt::Executable& executable);
  // Loads the executable, or compiles and stores it.
  std::shared_ptr<pjrt::Executable> compile(pjrt::Client& client, const std::string& stablehlo,
                                            const pjrt::CompileOptions& options, bool& from_disk);

  // Notes about a text, made by this or another process under the same conditions.
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
