// A file's bytes, mapped: read when they are first looked at, and shared with whoever else has the file open.
//
// Whoever overwrites a file in place, instead of putting another in its place, changes what is mapped.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace tpjrt::file {

using Bytes = std::span<const std::byte>;

class Mapping {
 public:
  // Throws Error where it can't be opened.
  explicit Mapping(const std::string& path);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  Bytes bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Writes a file in one go: to one of its own beside it, which then takes its place. Throws Error where that can't be done.
class Replacement {
 public:
  explicit Replacement(std::string path);
  ~Replacement();  // what was not committed is taken away
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  void write(Bytes bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_, temporary_;
  int descriptor_ = -1;
};

}  // namespace tpjrt::file
