// A file's bytes, mapped: they are read on first access, and shared with every process that has the file open.
//
// A program that overwrites the file in place, instead of replacing it, changes the mapping.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace tpjrt::file {

// An error in a file. The message names the file and says what to do.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Bytes = std::span<const std::byte>;

class Mapping {
 public:
  // Throws Error if the file can't be opened.
  explicit Mapping(const std::string& path);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  Bytes bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Writes a file atomically: to a new one beside it, which then replaces it. Throws Error if that can't be done.
class Replacement {
 public:
  explicit Replacement(std::string path);
  ~Replacement();  // deletes what was not committed
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
