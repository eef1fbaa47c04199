// Zip's records, read from the end: the end record, the central directory, and each member's own header.
#include "file/archive.h"

#include <cstring>
#include <optional>
#include <utility>

#include "file/crc32.h"

namespace tpjrt::file {

namespace {

constexpr uint32_t kEnd = 0x06054B50, kEnd64 = 0x06064B50, kLocator64 = 0x07064B50;
constexpr uint32_t kEntry = 0x02014B50, kLocal = 0x04034B50;
constexpr size_t kEndSize = 22, kLocatorSize = 20, kEnd64Size = 56, kEntrySize = 46, kLocalSize = 30;
constexpr uint64_t kWide = 0xFFFFFFFF;  // the number itself is in a 64-bit field

template <class T>
T number(Bytes bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

bool has_room(Bytes bytes, uint64_t at, uint64_t size) { return at <= bytes.size() && size <= bytes.size() - at; }

std::string text_at(Bytes bytes, size_t at, size_t size) {
  return {reinterpret_cast<const char*>(bytes.data()) + at, size};
}

std::optional<size_t> find_end(Bytes bytes) {
  if (bytes.size() < kEndSize) return std::nullopt;
  const size_t last = bytes.size() - kEndSize;
  for (size_t at = last + 1; at-- > 0 && last - at <= 0xFFFF;) {
    if (number<uint32_t>(bytes, at) == kEnd && number<uint16_t>(bytes, at + 20) == last - at) return at;
  }
  return std::nullopt;
}

// Returns whether unpacking this name would write outside of the target folder.
bool leaves_folder(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find_first_of(std::string_view("\\:\0", 3)) != name.npos) return true;
  for (size_t start = 0; start <= name.size();) {
    const size_t end = std::min(name.find('/', start), name.size());
    if (name.substr(start, end - start) == "..") return true;
    start = end + 1;
  }
  return false;
}

}  // namespace

void Archive::fail(const std::string& reason) const {
  throw Error("'" + path_ + "' " + reason + ". Copy it again from where it was made, or export it anew");
}

std::shared_ptr<const Archive> Archive::open(const std::string& path) {
  const auto mapping = std::make_shared<const Mapping>(path);
  return of(mapping, mapping->bytes(), path);
}

std::shared_ptr<const Archive> Archive::of(std::shared_ptr<const void> owner, Bytes bytes, std::string path) {
  return std::shared_ptr<const Archive>(new Archive(std::move(owner), bytes, std::move(path)));
}

Archive::Archive(std::shared_ptr<const void> owner, Bytes bytes, std::string path)
    : owner_(std::move(owner)), path_(std::move(path)) {
  const auto end = find_end(bytes);
  if (!end) fail("is no program's file, or is truncated: it doesn't end as an archive does");
  uint64_t count = number<uint16_t>(bytes, *end + 10);
  uint64_t size = number<uint32_t>(bytes, *end + 12), first = number<uint32_t>(bytes, *end + 16);
  if (*end >= kLocatorSize && number<uint32_t>(bytes, *end - kLocatorSize) == kLocator64) {
    const auto at = number<uint64_t>(bytes, *end - kLocatorSize + 8);
    if (!has_room(bytes, at, kEnd64Size) || number<uint32_t>(bytes, at) != kEnd64) fail("has a damaged directory");
    count = number<uint64_t>(bytes, at + 32);
    size = number<uint64_t>(bytes, at + 40);
    first = number<uint64_t>(bytes, at + 48);
  }
  if (!has_room(bytes, first, size)) fail("is truncated: its directory is beyond its end");
  const Bytes directory = bytes.subspan(first, size);
  size_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (!has_room(directory, at, kEntrySize) || number<uint32_t>(directory, at) != kEntry) {
      fail("has a damaged directory");
    }
    const size_t name_size = number<uint16_t>(directory, at + 28), extra_size = number<uint16_t>(directory, at + 30);
    const size_t entry_size = kEntrySize + name_size + extra_size + number<uint16_t>(directory, at + 32);
    if (!has_room(directory, at, entry_size)) fail("has a damaged directory");
    std::string name = text_at(directory, at + kEntrySize, name_size);
    if (leaves_folder(name)) {
      fail("has a member that would leave the folder when unpacked, " + name + ": it is not to be trusted");
    }
    if (number<uint16_t>(directory, at + 10) != 0 || (number<uint16_t>(directory, at + 8) & 1U)) {
      fail("has a compressed or encrypted member, " + name + ", and a program's file has neither");
    }
    uint64_t packed = number<uint32_t>(directory, at + 20), content = number<uint32_t>(directory, at + 24);
    uint64_t local = number<uint32_t>(directory, at + 42);
    const Bytes extra = directory.subspan(at + kEntrySize + name_size, extra_size);
    for (size_t e = 0; has_room(extra, e, 4);) {
      const size_t field = number<uint16_t>(extra, e + 2);
      if (!has_room(extra, e + 4, field)) break;
      if (number<uint16_t>(extra, e) == 1) {
        size_t wide = 0;
        for (uint64_t* narrow : {&content, &packed, &local}) {
          if (*narrow != kWide || wide + 8 > field) continue;
          *narrow = number<uint64_t>(extra, e + 4 + wide);
          wide += 8;
        }
      }
      e += 4 + field;
    }
    if (packed != content || !has_room(bytes, local, kLocalSize) || number<uint32_t>(bytes, local) != kLocal) {
      fail("has a damaged member, " + name);
    }
    const size_t local_name = number<uint16_t>(bytes, local + 26);
    const uint64_t data = local + kLocalSize + local_name + number<uint16_t>(bytes, local + 28);
    if (!has_room(bytes, data, content) || local_name != name_size ||
        text_at(bytes, local + kLocalSize, local_name) != name) {
      fail("has a damaged member, " + name);
    }
    add(std::move(name), bytes.subspan(data, content), number<uint32_t>(directory, at + 16));
    at += entry_size;
  }
}

void Archive::add(std::string name, Bytes content, uint32_t crc) {
  Member& member = members_[name];
  if (member.bytes.data()) fail("has two members of one name, " + name);
  member.bytes = content;
  member.crc = crc;
}

std::vector<std::string> Archive::names() const {
  std::vector<std::string> names;
  for (const auto& [name, member] : members_) names.push_back(name);
  return names;
}

Bytes Archive::read(std::string_view name) const {
  const auto found = members_.find(name);
  if (found == members_.end()) fail("has no member " + std::string(name));
  const Member& member = found->second;
  if (!member.checked) {
    if (crc32(member.bytes) != member.crc) fail("was altered: the checksum of " + std::string(name) + " is another");
    member.checked = true;
  }
  return member.bytes;
}

std::string_view Archive::read_text(std::string_view name) const {
  const Bytes bytes = read(name);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace tpjrt::file
