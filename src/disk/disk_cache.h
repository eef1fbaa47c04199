// Bytes kept on disk for later processes: executables, which cost seconds to compile and little to load.
//
// One folder, one file an entry, named by the entry's key. An entry is code that the plugin will run, so only what this
// user alone can have written is read: the folder and the entry belong to the user and nobody else may write to them.
// Entries are written to a file of their own and renamed, so that any number of processes may share the folder; each
// carries its key and a checksum. Whatever is wrong with the folder or an entry costs a compile and a warning that names
// the path and the cure, never an exception. The folder's size is bounded: what was not used for longest goes first.
// May be used from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace tpjrt::disk {

class DiskCache {
 public:
  struct Settings {
    bool on = true;
    std::string folder;
    uint64_t most_bytes = uint64_t{2} << 30;
  };
  // TORCH_PJRT_CACHE, TORCH_PJRT_CACHE_DIR and TORCH_PJRT_CACHE_SIZE; see docs/environment.md.
  static Settings settings_from_environment();

  explicit DiskCache(Settings settings) : settings_(std::move(settings)), on_(settings_.on) {}

  // False once the folder was refused.
  bool is_on() const;
  // What was stored under the key, or nothing. `key` is a digest.
  std::optional<std::string> load(const std::string& key);
  // Keeps it, in the place of what was there. Nothing larger than the bound is kept.
  void store(const std::string& key, const std::string& content);
  // Warns that what load() gave turned out to be of no use: `reason` reads on from "the cached program '…' ".
  void refuse(const std::string& key, const std::string& reason) const;

 private:
  class File;
  File open_folder(bool create);
  void turn_off(const std::string& reason, const std::string& cure);
  void write(const File& folder, const std::string& key, const std::string& content);
  void keep_bound(const File& folder, uint64_t added);
  std::string path_of(const std::string& key) const;

  const Settings settings_;
  mutable std::mutex lock_;
  bool on_;                    // under lock_
  bool can_store_ = true;      // under lock_
  uint64_t stores_ = 0;        // under lock_
  uint64_t folder_bytes_ = 0;  // under lock_: as far as this process knows
};

}  // namespace tpjrt::disk
