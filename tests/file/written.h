// Archives for tests: the smallest that zip allows, and a program's file by hand.
#pragma once

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "file/archive.h"
#include "file/crc32.h"

namespace tpjrt::file::test {

using Members = std::vector<std::pair<std::string, std::string>>;

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// `method` 0: stored. Data begins at multiples of 64.
inline std::string archive_of(const Members& members, uint16_t method = 0) {
  std::string out, directory;
  for (const auto& [name, content] : members) {
    const auto at = static_cast<uint32_t>(out.size()), size = static_cast<uint32_t>(content.size());
    const uint32_t crc = crc32(bytes_of(content));
    const auto filling = static_cast<uint16_t>((64 - (at + 30 + name.size() + 4) % 64) % 64);
    const auto fields = [&](std::string& to) {
      put<uint16_t>(to, 20), put<uint16_t>(to, 0), put<uint16_t>(to, method), put<uint32_t>(to, 0x210000);
      put(to, crc), put(to, size), put(to, size), put<uint16_t>(to, static_cast<uint16_t>(name.size()));
    };
    put<uint32_t>(out, 0x04034B50), fields(out), put<uint16_t>(out, filling + 4);
    out += name;
    put<uint16_t>(out, 0x5054), put(out, filling), out.append(filling, '\0');
    out += content;
    put<uint32_t>(directory, 0x02014B50), put<uint16_t>(directory, 20), fields(directory);
    put<uint16_t>(directory, 0), put<uint16_t>(directory, 0), put<uint16_t>(directory, 0), put<uint16_t>(directory, 0);
    put<uint32_t>(directory, 0), put(directory, at);
    directory += name;
  }
  const auto at = static_cast<uint32_t>(out.size()), count = static_cast<uint32_t>(members.size());
  out += directory;
  put<uint32_t>(out, 0x06054B50), put<uint32_t>(out, 0), put<uint16_t>(out, count), put<uint16_t>(out, count);
  put<uint32_t>(out, static_cast<uint32_t>(directory.size())), put(out, at), put<uint16_t>(out, 0);
  return out;
}

inline std::shared_ptr<const Archive> opened(std::string content) {
  const auto owner = std::make_shared<const std::string>(std::move(content));
  return Archive::of(owner, bytes_of(*owner), "it.pjrt");
}

// A file in a folder of its own, gone at the end.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/torch_pjrt_test_XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~Folder() {
    for (const std::string& file : files_) ::unlink(file.c_str());
    ::rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path(const std::string& name) {
    files_.push_back(path_ + "/" + name);
    return files_.back();
  }
  std::string write(const std::string& name, const std::string& content) {
    std::ofstream(path(name), std::ios::binary) << content;
    return files_.back();
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<std::string> files_;
};

inline std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the message that `action` throws, which must be an E; "" if it throws nothing.
template <class E = Error, class Action>
std::string thrown(Action&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace tpjrt::file::test
