// Zip archives whose members are stored, not compressed, so they are read where they are mapped.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "file/mapping.h"

namespace tpjrt::file {

// Opening checks everything except the members' contents, each of which is checked against its checksum when it is
// first read. Immutable otherwise; may be used from any thread.
class Archive {
 public:
  // Throws Error, which names the file.
  static std::shared_ptr<const Archive> open(const std::string& path);
  // Opens an archive in bytes that `owner` keeps alive; errors call it `path`.
  static std::shared_ptr<const Archive> of(std::shared_ptr<const void> owner, Bytes bytes, std::string path);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;
  bool has(std::string_view name) const { return members_.find(name) != members_.end(); }
  // Returns the member's content. Throws Error if there is no such member or it was altered.
  Bytes read(std::string_view name) const;
  std::string_view read_text(std::string_view name) const;

 private:
  struct Member {
    Bytes bytes;
    uint32_t crc = 0;
    mutable std::atomic<bool> checked{false};
  };

  Archive(std::shared_ptr<const void> owner, Bytes bytes, std::string path);
  [[noreturn]] void fail(const std::string& reason) const;
  void add(std::string name, Bytes content, uint32_t crc);

  std::shared_ptr<const void> owner_;
  std::string path_;
  std::map<std::string, Member, std::less<>> members_;
};

}  // namespace tpjrt::file
