// Sixteen bytes at a time: table i tells what a byte does that stands i bytes before the end.
#include "file/crc32.h"

#include <array>
#include <bit>
#include <cstring>

namespace tpjrt::file {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 16>;

constexpr Tables tables() {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t word = i;
    for (int bit = 0; bit < 8; ++bit) word = word >> 1 ^ (word & 1U ? 0xEDB88320U : 0U);
    tables[0][i] = word;
  }
  for (size_t t = 1; t < tables.size(); ++t) {
    for (size_t i = 0; i < 256; ++i) tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xFFU];
  }
  return tables;
}

constexpr Tables kTables = tables();

}  // namespace

uint32_t crc32(Bytes bytes) {
  static_assert(std::endian::native == std::endian::little);
  uint32_t crc = ~0U;
  const std::byte* data = bytes.data();
  size_t left = bytes.size();
  for (; left >= 16; left -= 16, data += 16) {
    std::array<uint32_t, 4> words;
    std::memcpy(words.data(), data, 16);
    words[0] ^= crc;
    crc = 0;
    for (size_t w = 0; w < 4; ++w) {
      for (size_t b = 0; b < 4; ++b) crc ^= kTables[15 - 4 * w - b][words[w] >> (8 * b) & 0xFFU];
    }
  }
  for (; left > 0; --left, ++data) crc = crc >> 8 ^ kTables[0][(crc ^ static_cast<uint32_t>(*data)) & 0xFFU];
  return ~crc;
}

}  // namespace tpjrt::file
