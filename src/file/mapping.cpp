// mmap, and writing to a file beside the target.
#include "file/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tpjrt::file {

Mapping::Mapping(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const auto fail = [&](const std::string& reason) {
    if (descriptor >= 0) ::close(descriptor);
    throw Error("'" + path + "' can't be opened: " + reason);
  };
  if (descriptor < 0) fail(std::strerror(errno));
  struct stat status{};
  if (::fstat(descriptor, &status) != 0) fail(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail("it is no plain file");
  size_ = static_cast<size_t>(status.st_size);
  if (size_ > 0) {
    void* memory = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (memory == MAP_FAILED) fail(std::strerror(errno));
    data_ = static_cast<const std::byte*>(memory);
  }
  ::close(descriptor);
}

Mapping::~Mapping() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

Replacement::Replacement(std::string path) : path_(std::move(path)), temporary_(path_ + ".XXXXXX") {
  descriptor_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
  if (descriptor_ < 0) fail(errno);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  (void)::fchmod(descriptor_, 0666 & ~mask);
}

Replacement::~Replacement() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void Replacement::fail(int error) const {
  throw Error("'" + path_ + "' can't be written: " + std::strerror(error) +
              ". Give a path in a folder that is there, may be written to and has room");
}

void Replacement::write(Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void Replacement::commit() {
  if (::close(std::exchange(descriptor_, -1)) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary_.c_str());
    fail(error);
  }
}

}  // namespace tpjrt::file
