// Entries as files: validates what it reads, writes atomically, and removes the oldest. Passes warnings to the
// installed function, or to standard error.
#include "disk/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "disk/sha1.h"

namespace tpjrt::disk {

namespace {

std::atomic<Warning> installed{nullptr};

// The number versions this layout and the composition of keys (disk/executables.cpp).
constexpr std::string_view kMagic = "torch_pjrt program 1\n";
constexpr std::string_view kSuffix = ".pjrt";
constexpr std::string_view kTemporary = ".tmp";
constexpr size_t kDigest = 40;
constexpr size_t kHeader = kMagic.size() + 2 * (kDigest + 1);

std::string header(const std::string& key, const std::string& content) {
  return std::string(kMagic) + key + " " + digest(content) + "\n";
}

std::string mode_text(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", mode & 07777U);
  return text;
}

// Returns why a file or folder can't be trusted; empty if it can.
std::string distrust(const struct stat& status) {
  if (status.st_uid != ::geteuid()) return "belongs to another user (uid " + std::to_string(status.st_uid) + ")";
  if (status.st_mode & (S_IWGRP | S_IWOTH)) return "may be written by others (mode " + mode_text(status.st_mode) + ")";
  return "";
}

std::string home() {
  if (const char* home = std::getenv("HOME"); home && *home) return home;
  const passwd* user = ::getpwuid(::geteuid());
  return user && user->pw_dir ? user->pw_dir : "";
}

// Parses "500000000", "500MB", "2GiB", "2G".
std::optional<uint64_t> parse_bytes(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit(end);
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return std::tolower(c); });
  if (end == text.c_str() || errno != 0 || !(number >= 0)) return std::nullopt;
  double factor = 1;
  for (const auto& [letter, power] : {std::pair{'k', 1}, {'m', 2}, {'g', 3}, {'t', 4}}) {
    if (unit.empty() || unit[0] != letter) continue;
    const bool decimal = unit.size() == 2;  // MB; M and MiB are binary
    for (int i = 0; i < power; ++i) factor *= decimal ? 1000 : 1024;
    unit = unit.substr(1);
    break;
  }
  if (!(unit.empty() || unit == "b" || (unit == "ib" && factor > 1)) || number * factor > 1e18) return std::nullopt;
  return static_cast<uint64_t>(number * factor);
}

// Creates folders like mkdir -p, but private. Returns an errno, or 0.
int make_folders(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    if (::mkdir(path.substr(0, slash).c_str(), 0700) != 0 && errno != EEXIST) return errno;
    if (slash == std::string::npos) return 0;
  }
}

}  // namespace

// A file descriptor, closed by the destructor.
class DiskCache::File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  explicit operator bool() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  // Reads to the end of the file. Returns an errno, or 0.
  int read(std::string& bytes, size_t expected) const {
    bytes.resize(expected + 1);  // one more, to detect the end
    size_t size = 0;
    for (;;) {
      const ssize_t count = ::read(descriptor_, bytes.data() + size, bytes.size() - size);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno;
      if (count == 0) break;
      size += static_cast<size_t>(count);
      if (size == bytes.size()) bytes.resize(2 * size);
    }
    bytes.resize(size);
    return 0;
  }
  int write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return 0;
  }

 private:
  int descriptor_;
};

DiskCache::Settings DiskCache::settings_from_environment() {
  const auto text = [](const char* value) { return std::string(value ? value : ""); };
  Settings settings;
  settings.on = text(std::getenv("TORCH_PJRT_CACHE")) != "0";
  settings.folder = text(std::getenv("TORCH_PJRT_CACHE_DIR"));
  if (settings.folder.empty()) {
    // Its specification says to ignore a relative XDG_CACHE_HOME.
    const std::string cache = text(std::getenv("XDG_CACHE_HOME"));
    settings.folder = (cache.starts_with('/') ? cache : home() + "/.cache") + "/torch_pjrt";
  }
  if (const std::string size = text(std::getenv("TORCH_PJRT_CACHE_SIZE")); !size.empty() && settings.on) {
    if (const auto bytes = parse_bytes(size)) {
      settings.most_bytes = *bytes;
    } else {
      warn("torch_pjrt: TORCH_PJRT_CACHE_SIZE='", size, "' is no size; ", settings.most_bytes >> 30,
           " GiB is used. Give a number of bytes, or one with a unit, such as 500MB or 2GiB.");
    }
  }
  return settings;
}

std::string DiskCache::path_of(const std::string& key) const {
  return settings_.folder + "/" + key + std::string(kSuffix);
}

bool DiskCache::is_on() const {
  std::lock_guard guard(lock_);
  return on_;
}

void DiskCache::turn_off(const std::string& reason, const std::string& cure) {
  {
    std::lock_guard guard(lock_);
    if (!std::exchange(on_, false)) return;
  }
  warn("torch_pjrt: the folder for compiled programs, '", settings_.folder, "', ", reason,
       ", so programs are neither read from disk nor kept there. ", cure,
       "set TORCH_PJRT_CACHE_DIR to a folder of your own, or TORCH_PJRT_CACHE=0 to do without.");
}

DiskCache::File DiskCache::open_folder(bool create) {
  if (create) {
    if (const int error = make_folders(settings_.folder)) {
      turn_off(std::string("can't be made: ") + std::strerror(error), "Make it, ");
      return File(-1);
    }
  }
  File folder(::open(settings_.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) {
    if (create || errno != ENOENT) turn_off(std::string("can't be opened: ") + std::strerror(errno), "Repair it, ");
    return folder;
  }
  struct stat status{};
  if (::fstat(folder.get(), &status) != 0) {
    turn_off(std::string("can't be opened: ") + std::strerror(errno), "Repair it, ");
    return File(-1);
  }
  if (const std::string reason = distrust(status); !reason.empty()) {
    const bool own = status.st_uid == ::geteuid();
    turn_off(reason, own ? "`chmod 700` it if nobody else had a hand in it, " : "To cure it, ");
    return File(-1);
  }
  return folder;
}

std::optional<std::string> DiskCache::load(const std::string& key) {
  if (!is_on()) return std::nullopt;
  const File folder = open_folder(/*create=*/false);
  if (!folder) return std::nullopt;
  const std::string name = key + std::string(kSuffix);
  // Doesn't follow links, and doesn't block on a pipe.
  const File file(::openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  const auto refused = [&](const std::string& reason) {
    refuse(key, reason);
    return std::nullopt;
  };
  if (!file) {
    if (errno == ENOENT) return std::nullopt;
    return refused(errno == ELOOP ? "is a symbolic link" : std::string("can't be read: ") + std::strerror(errno));
  }
  struct stat status{};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return refused("is no plain file");
  if (const std::string reason = distrust(status); !reason.empty()) return refused(reason);
  std::string bytes;
  if (const int error = file.read(bytes, static_cast<size_t>(status.st_size)))
    return refused(std::string("can't be read: ") + std::strerror(error));
  if (bytes.size() < kHeader || !bytes.starts_with(kMagic)) return refused("is truncated, or no program of torch_pjrt");
  if (bytes.compare(kMagic.size(), kDigest, key) != 0) return refused("is that of another program");
  std::string content = bytes.substr(kHeader);
  if (!bytes.starts_with(header(key, content))) return refused("is truncated or damaged (its checksum is wrong)");
  // Marks the entry as used. In a read-only folder this fails, but nothing is removed there either.
  (void)::futimens(file.get(), nullptr);
  return content;
}

void DiskCache::refuse(const std::string& key, const std::string& reason) const {
  warn("torch_pjrt: the cached program '", path_of(key), "' ", reason,
       ". It is compiled again and replaced. Should this come back, delete the folder, or set "
       "TORCH_PJRT_CACHE_DIR to another one.");
}

void DiskCache::store(const std::string& key, const std::string& content) {
  {
    std::lock_guard guard(lock_);
    if (!on_ || !can_store_ || content.size() + kHeader > settings_.most_bytes) return;
  }
  const File folder = open_folder(/*create=*/true);
  if (!folder) return;
  keep_bound(folder, content.size() + kHeader);
  write(folder, key, content);
}

void DiskCache::write(const File& folder, const std::string& key, const std::string& content) {
  std::string temporary;
  {
    std::lock_guard guard(lock_);
    temporary = key + "." + std::to_string(::getpid()) + "." + std::to_string(stores_) + std::string(kTemporary);
  }
  int error = 0;
  {
    const File file(
        ::openat(folder.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) {
      error = errno;
    } else {
      error = file.write(header(key, content));
      if (!error) error = file.write(content);
    }
  }
  const std::string name = key + std::string(kSuffix);
  if (!error && ::renameat(folder.get(), temporary.c_str(), folder.get(), name.c_str()) != 0) error = errno;
  if (!error) return;
  (void)::unlinkat(folder.get(), temporary.c_str(), 0);  // if it exists
  {
    std::lock_guard guard(lock_);
    if (!std::exchange(can_store_, false)) return;
  }
  warn("torch_pjrt: compiled programs can't be kept in '", settings_.folder, "': ", std::strerror(error),
       ". This process keeps no more of them. Make room there or make it writable, set TORCH_PJRT_CACHE_DIR to "
       "another folder, or TORCH_PJRT_CACHE=0 to do without.");
}

// Other processes write there too, so the folder is scanned again every now and then.
void DiskCache::keep_bound(const File& folder, uint64_t added) {
  constexpr uint64_t kLookEvery = 32;
  constexpr time_t kAbandoned = 3600;  // seconds after which a temporary file belongs to a dead process
  {
    std::lock_guard guard(lock_);
    folder_bytes_ += added;
    if (stores_++ % kLookEvery != 0 && folder_bytes_ <= settings_.most_bytes) return;
  }
  struct Entry {
    std::string name;
    timespec used;
    uint64_t bytes;
  };
  std::vector<Entry> entries;
  uint64_t total = added;
  const int again = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* listing = again >= 0 ? ::fdopendir(again) : nullptr;
  if (!listing) {
    if (again >= 0) ::close(again);
    return;  // writing fails too, and reports it
  }
  while (const dirent* item = ::readdir(listing)) {
    const std::string_view name = item->d_name;
    struct stat status{};
    const bool temporary = name.ends_with(kTemporary);
    if ((!temporary && !name.ends_with(kSuffix)) ||
        ::fstatat(folder.get(), item->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    if (temporary && status.st_mtim.tv_sec + kAbandoned < ::time(nullptr)) {
      (void)::unlinkat(folder.get(), item->d_name, 0);
    } else {
      entries.push_back({std::string(name), status.st_mtim, static_cast<uint64_t>(status.st_size)});
      total += entries.back().bytes;
    }
  }
  ::closedir(listing);
  if (total > settings_.most_bytes) {
    // Frees more room than needed, or every further program would end up here.
    const uint64_t wanted = settings_.most_bytes - settings_.most_bytes / 8;
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
    });
    for (const Entry& entry : entries) {
      if (total <= wanted) break;
      // Another process may have removed it first. Readers can still read an open file.
      if (::unlinkat(folder.get(), entry.name.c_str(), 0) == 0 || errno == ENOENT) total -= entry.bytes;
    }
  }
  std::lock_guard guard(lock_);
  folder_bytes_ = total;
}

void install_warning(Warning warning) { installed = warning; }

void warn_of(const std::string& message) {
  if (const Warning warning = installed) return warning(message);
  std::fprintf(stderr, "warning: %s\n", message.c_str());
}

}  // namespace tpjrt::disk
