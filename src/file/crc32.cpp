// Computes CRC-32 by carry-less products where the processor has them, else by tables, sixteen bytes at a time.
#include "file/crc32.h"

#include <array>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define TPJRT_HAS_CLMUL 1
#endif

namespace tpjrt::file {

namespace {

constexpr uint32_t kPolynomial = 0xEDB88320U;  // bits reversed: the highest power is the lowest bit
using Tables = std::array<std::array<uint32_t, 256>, 16>;

// Table i has the effect of a byte that is i bytes before the end.
constexpr Tables tables() {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t word = i;
    for (int bit = 0; bit < 8; ++bit) word = word >> 1 ^ (word & 1U ? kPolynomial : 0U);
    tables[0][i] = word;
  }
  for (size_t t = 1; t < tables.size(); ++t) {
    for (size_t i = 0; i < 256; ++i) tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xFFU];
  }
  return tables;
}

constexpr Tables kTables = tables();

uint32_t by_tables(uint32_t crc, const std::byte* data, size_t left) {
  static_assert(std::endian::native == std::endian::little);
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
  return crc;
}

#ifdef TPJRT_HAS_CLMUL

// Returns x to the `power`, modulo the polynomial, in the form for products of reversed bits: shifted by one.
constexpr int64_t power_of_x(int power) {
  uint32_t value = 0x80000000U;
  for (int i = 0; i < power; ++i) value = value >> 1 ^ (value & 1U ? kPolynomial : 0U);
  return static_cast<int64_t>(uint64_t{value} << 1);
}

// Returns the sum of `others` and the effect of 16 bytes that come this many bits before them.
__attribute__((target("pclmul,sse4.1"))) inline __m128i folded(__m128i bytes, __m128i factors, __m128i others) {
  const __m128i low = _mm_clmulepi64_si128(bytes, factors, 0x00), high = _mm_clmulepi64_si128(bytes, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), others);
}

// Folds four lanes of 16 bytes into the bytes 64 behind each, and then the lanes into one.
__attribute__((target("pclmul,sse4.1"))) uint32_t by_products(uint32_t crc, const std::byte* data, size_t size) {
  constexpr int kBits = 128;
  const __m128i far = _mm_set_epi64x(power_of_x(4 * kBits - 32), power_of_x(4 * kBits + 32));
  const __m128i near = _mm_set_epi64x(power_of_x(kBits - 32), power_of_x(kBits + 32));
  const auto* next = reinterpret_cast<const __m128i*>(data);
  __m128i a = _mm_xor_si128(_mm_loadu_si128(next), _mm_cvtsi32_si128(static_cast<int>(crc)));
  __m128i b = _mm_loadu_si128(next + 1), c = _mm_loadu_si128(next + 2), d = _mm_loadu_si128(next + 3);
  size_t left = size - 64;
  for (next += 4; left >= 64; left -= 64, next += 4) {
    a = folded(a, far, _mm_loadu_si128(next));
    b = folded(b, far, _mm_loadu_si128(next + 1));
    c = folded(c, far, _mm_loadu_si128(next + 2));
    d = folded(d, far, _mm_loadu_si128(next + 3));
  }
  a = folded(folded(folded(a, near, b), near, c), near, d);
  std::array<std::byte, 16> rest;
  std::memcpy(rest.data(), &a, rest.size());
  return by_tables(by_tables(0, rest.data(), rest.size()), reinterpret_cast<const std::byte*>(next), left);
}

#endif

}  // namespace

uint32_t crc32(Bytes bytes) {
#ifdef TPJRT_HAS_CLMUL
  if (bytes.size() >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
    return ~by_products(~0U, bytes.data(), bytes.size());
  }
#endif
  return ~by_tables(~0U, bytes.data(), bytes.size());
}

}  // namespace tpjrt::file
