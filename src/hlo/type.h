// StableHLO tensor types (an element type and static dimensions), and attribute values in MLIR syntax.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tpjrt::hlo {

// Types are plain values, copied freely and independent of torch and PJRT. Names and spellings are those of the
// StableHLO specification ("Types"): "f32", "i64", "ui8", "i1", "complex<f32>", "f8E4M3FN".

enum class ElementType : uint8_t {
  kPred,
  kS8,
  kS16,
  kS32,
  kS64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF8E4M3FN,
  kF8E4M3FNUZ,
  kF8E5M2,
  kF8E5M2FNUZ,
  kF8E8M0FNU,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,
  kC128,
};

// Returns the spelling in StableHLO text, such as "f32" or "complex<f64>".
std::string_view spelling(ElementType element);
// Returns the size of one element in bytes (kPred takes one byte).
int64_t byte_width(ElementType element);
bool is_float(ElementType element);  // any real float, 8-bit ones included
bool is_complex(ElementType element);
bool is_signed_integer(ElementType element);
bool is_unsigned_integer(ElementType element);
bool is_integer(ElementType element);  // signed or unsigned, not kPred
// Returns the real part's type of a complex type; otherwise the type itself.
ElementType real_element(ElementType element);

// Sizes, or dimension numbers. An index out of range throws std::out_of_range: a rule may get arguments that no rule
// expects, and then the host reports the error.
struct Dims : std::vector<int64_t> {
  using std::vector<int64_t>::vector;
  Dims(std::vector<int64_t> dims) : std::vector<int64_t>(std::move(dims)) {}  // NOLINT: as if it were one
  int64_t& operator[](size_t i) { return at(i); }
  const int64_t& operator[](size_t i) const { return at(i); }
  int64_t& back() { return at(size() - 1); }
  const int64_t& back() const { return at(size() - 1); }
  using std::vector<int64_t>::insert;
  using std::vector<int64_t>::erase;
  iterator insert(const_iterator before, const int64_t& x) {
    return std::vector<int64_t>::insert(checked(before, size()), x);
  }
  iterator erase(const_iterator one) { return std::vector<int64_t>::erase(checked(one, size() - 1)); }

 private:
  const_iterator checked(const_iterator place, size_t last) const {
    const auto i = static_cast<size_t>(place - begin());
    if (i > last || last > max_size()) throw std::out_of_range("a dimension that isn't there");
    return place;
  }
};

struct Type {
  ElementType element = ElementType::kF32;
  Dims dims;

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t elements() const;
  bool operator==(const Type&) const = default;
};

// "tensor<4x4xf32>"
std::string to_string(const Type& type);

// Attribute values in MLIR syntax.
std::string attribute(bool value);              // "true"
std::string attribute(int64_t value);           // "1 : i64"
std::string attribute(double value);            // "1.0e-05 : f64"; nan and infinities as bits
std::string attribute(std::string_view value);  // a string literal
inline std::string attribute(const char* value) { return attribute(std::string_view(value)); }
std::string attribute(const Dims& values);  // "array<i64: 1, 2>"
std::string attribute(const std::vector<bool>& values);
std::string attribute(const std::vector<double>& values);
std::string attribute(const std::vector<std::string>& values);  // ["a", "b"]
// Appends values to a list of strings in MLIR syntax.
std::string longer(const std::string& list, const std::vector<std::string>& values);

}  // namespace tpjrt::hlo
