// Bytes kept on disk for later processes: executables, which take seconds to compile and little to load.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>

namespace tpjrt::disk {

// One folder has one file for each entry, named by the entry's key. An entry is code that the plugin will run, so only
// files that this user alone can have written are read: folder and entry belong to the user, and nobody else may write
// to them. An entry is written to a temporary file and renamed, so that any number of processes may share the folder.
// It contains its key and a checksum. A problem with the folder or an entry costs a compile and a warning that names
// the path and the cure; it never throws. The folder's size is bounded: the least recently used entries are removed
// first. Thread-safe.
class DiskCache {
 public:
  struct Settings {
    bool on = true;
    std::string folder;
    uint64_t most_bytes = uint64_t{2} << 30;
  };
  // Reads TORCH_PJRT_CACHE, TORCH_PJRT_CACHE_DIR and TORCH_PJRT_CACHE_SIZE; see docs/environment.md.
  static Settings settings_from_environment();

  explicit DiskCache(Settings settings) : settings_(std::move(settings)), on_(settings_.on) {}

  // Returns false once the folder was rejected.
  bool is_on() const;
  // Returns the content stored under the key, or nothing. `key` is a digest.
  std::optional<std::string> load(const std::string& key);
  // Stores the content, replacing an old one. Contents larger than the bound are not stored.
  void store(const std::string& key, const std::string& content);
  // Warns that an entry returned by load() is unusable. `reason` continues the sentence "the cached program '…' ".
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
  uint64_t folder_bytes_ = 0;  // under lock_; this process's estimate
};

// Warnings of this room, because a problem with the folder or an entry never ends a run. By default they go to standard
// error. May be called from any thread.
using Warning = void (*)(const std::string& message);
void install_warning(Warning warning);
void warn_of(const std::string& message);

void warn(const auto&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  warn_of(text.str());
}

}  // namespace tpjrt::disk
