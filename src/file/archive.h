// A zip archive whose members are stored, not compressed, so that they are read where they are mapped.
//
// All that is asked of the archive is looked at when it is opened, but the members' contents: each is checked against its
// checksum when it is first asked for. Immutable but for that; may be used from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "file/error.h"
#include "file/mapping.h"

namespace tpjrt::file {

class Archive {
 public:
  // Throws Error, which names the file.
  static std::shared_ptr<const Archive> open(const std::string& path);
  // Of bytes that `owner` keeps; `path` is what errors call it.
  static std::shared_ptr<const Archive> of(std::shared_ptr<const void> owner, Bytes bytes, std::string path);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;
  bool has(std::string_view name) const { return members_.find(name) != members_.end(); }
  // The content. Throws Error where there is no such member or it was altered.
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
