// Constants, exact to the bit.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "hlo/builder_text.h"

namespace tpjrt::hlo {

namespace {

// A dense constant with more elements is written as hexadecimal bytes.
constexpr size_t kReadableElements = 256;

std::string hex(uint64_t bits, int64_t bytes) {
  static const char* digits = "0123456789ABCDEF";
  std::string text = "0x";
  for (int64_t shift = 8 * bytes - 4; shift >= 0; shift -= 4) text += digits[(bits >> shift) & 15];
  return text;
}

// Rounds half to even at `fraction` bits with the given least normal exponent; values that are too large become
// infinite.
double round_to(double value, int fraction, int least_exponent, double largest) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = std::max(std::ilogb(value), least_exponent);
  double unit = std::ldexp(1.0, exponent - fraction);
  double rounded = std::nearbyint(value / unit) * unit;
  return std::abs(rounded) > largest ? std::copysign(std::numeric_limits<double>::infinity(), value) : rounded;
}

// Returns the value of `element` nearest to `value`, as a double. The parser of the text rounds to 8-bit floats.
double nearest(double value, ElementType element) {
  switch (element) {
    case ElementType::kF32: return static_cast<float>(value);
    case ElementType::kF16: return round_to(value, 10, -14, 65504.0);
    case ElementType::kBF16: return round_to(value, 7, -126, 0x1.fep127);
    default: return value;
  }
}

std::string special_bits(double value, ElementType element) {
  const bool negative = std::signbit(value);
  const bool nan = std::isnan(value);
  auto bits = [&](uint64_t infinity, uint64_t quiet_nan, int64_t bytes) {
    uint64_t sign = negative && !nan ? uint64_t{1} << (8 * bytes - 1) : 0;
    return hex((nan ? quiet_nan : infinity) | sign, bytes);
  };
  switch (element) {
    case ElementType::kF64: return bits(0x7FF0000000000000, 0x7FF8000000000000, 8);
    case ElementType::kF32: return bits(0x7F800000, 0x7FC00000, 4);
    case ElementType::kF16: return bits(0x7C00, 0x7E00, 2);
    case ElementType::kBF16: return bits(0x7F80, 0x7FC0, 2);
    case ElementType::kF8E5M2: return bits(0x7C, 0x7E, 1);
    case ElementType::kF8E4M3FN: return hex(0x7F, 1);  // no infinity
    default: return hex(0x80, 1);                      // FNUZ types: one NaN, no infinity
  }
}

std::string integer_text(int64_t value, ElementType element) {
  if (element == ElementType::kPred) return value ? "true" : "false";
  switch (element) {  // wraps like torch
    case ElementType::kS8: return std::to_string(static_cast<int8_t>(value));
    case ElementType::kS16: return std::to_string(static_cast<int16_t>(value));
    case ElementType::kS32: return std::to_string(static_cast<int32_t>(value));
    case ElementType::kU8: return std::to_string(static_cast<uint8_t>(value));
    case ElementType::kU16: return std::to_string(static_cast<uint16_t>(value));
    case ElementType::kU32: return std::to_string(static_cast<uint32_t>(value));
    case ElementType::kU64: return std::to_string(static_cast<uint64_t>(value));
    default: return std::to_string(value);
  }
}

std::string dense(const std::string& content, const Type& type) {
  return cat("stablehlo.constant dense<", type.elements() == 0 ? "" : content, "> : ", type);
}

// Formats nested brackets, row-major; one(i) is the text of element i.
template <class F>
std::string nested(const Dims& dims, size_t axis, size_t& next, const F& one) {
  if (axis == dims.size()) return one(next++);
  std::string text = "[";
  for (int64_t i = 0; i < dims[axis]; ++i) text += (i ? ", " : "") + nested(dims, axis + 1, next, one);
  return text + "]";
}

template <class F>
std::string nested(const Type& type, const F& one) {
  size_t next = 0;
  return nested(type.dims, 0, next, one);
}

void append_bytes(std::string& text, uint64_t bits, int64_t bytes) {
  static const char* digits = "0123456789ABCDEF";
  for (int64_t i = 0; i < bytes; ++i) {
    text += digits[(bits >> (8 * i + 4)) & 15];
    text += digits[(bits >> (8 * i)) & 15];
  }
}

// Formats a type that is only an exponent, from 2^-127 to 2^127: the nearest to the magnitude; ties go to the float's
// even mantissa.
std::string power_of_two(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(std::abs(value)));
  const uint32_t exponent = bits >> 23, rest = bits & 0x7FFFFF;
  if (exponent == 0xFF) return hex(0xFF, 1);  // the only NaN
  return hex(exponent + (rest > 0x400000 || (rest == 0x400000 && exponent > 0) ? 1 : 0), 1);
}

}  // namespace

std::string float_text(double exact, ElementType element) {
  if (element == ElementType::kF8E8M0FNU) return power_of_two(exact);
  double value = nearest(exact, element);
  if (!std::isfinite(value)) return special_bits(value, element);
  char buffer[64];
  auto shortest = element == ElementType::kF64
                      ? std::to_chars(buffer, buffer + sizeof buffer, value)
                      : std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value));
  std::string text(buffer, shortest.ptr);
  // The parser reads a double and rounds it to the type. If the decimal doesn't survive that, the bits are written.
  if (nearest(std::strtod(text.c_str(), nullptr), element) != value) {
    if (element == ElementType::kF64) return hex(std::bit_cast<uint64_t>(value), 8);
    if (element == ElementType::kF32) return hex(std::bit_cast<uint32_t>(static_cast<float>(value)), 4);
    text.assign(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  }
  // MLIR requires a dot: "1" is written "1.0" and "1e-05" is written "1.0e-05".
  if (text.find('.') == std::string::npos) text.insert(std::min(text.find('e'), text.size()), ".0");
  return text;
}

Value Builder::constant(double value, const Type& type) {
  if (is_complex(type.element)) return constant_complex(value, 0, type);
  if (type.element == ElementType::kPred) return constant(static_cast<int64_t>(value != 0), type);
  if (!is_float(type.element)) {
    check(value >= -0x1p63 && value < 0x1p63, "constant", value, " does not fit ", type);
    return constant(static_cast<int64_t>(value), type);
  }
  Value splat = impl_->emit(type, [&] { return dense(float_text(value, type.element), type); });
  impl_->numbers[splat.id] = value;
  return splat;
}

Value Builder::constant(int64_t value, const Type& type) {
  if (is_complex(type.element) || is_float(type.element)) return constant(static_cast<double>(value), type);
  Value splat = impl_->emit(type, [&] { return dense(integer_text(value, type.element), type); });
  impl_->numbers[splat.id] = static_cast<double>(value);
  return splat;
}

std::optional<double> Builder::number_of(const Value& x) const {
  const auto found = impl_->numbers.find(x.id);
  return found == impl_->numbers.end() ? std::nullopt : std::optional(found->second);
}

Value Builder::constant_u64(uint64_t value, const Type& type) {
  if (type.element == ElementType::kPred) return constant(static_cast<int64_t>(value != 0), type);
  if (!is_integer(type.element)) return constant(static_cast<double>(value), type);
  return constant(static_cast<int64_t>(value), type);
}

Value Builder::constant_complex(double real, double imag, const Type& type) {
  check(is_complex(type.element), "constant", "a complex value for ", type);
  ElementType part = real_element(type.element);
  Value splat = impl_->emit(
      type, [&] { return dense(cat("(", float_text(real, part), ", ", float_text(imag, part), ")"), type); });
  impl_->numbers[splat.id] = real == 0 && imag == 0 ? (std::signbit(real) && std::signbit(imag) ? -0.0 : 0.0) : 1.0;
  return splat;
}

Value Builder::constant_dense(const std::vector<int64_t>& values, const Type& type) {
  check(static_cast<int64_t>(values.size()) == type.elements(), "constant", values.size(), " values for ", type);
  check(is_integer(type.element) || type.element == ElementType::kPred, "constant", "integers for ", type);
  std::string content;
  if (!impl_->writes) return impl_->emit(type);
  if (values.size() <= kReadableElements || type.element == ElementType::kPred) {
    content = nested(type, [&](size_t i) { return integer_text(values[i], type.element); });
  } else {
    content = "\"0x";
    for (int64_t value : values) append_bytes(content, static_cast<uint64_t>(value), byte_width(type.element));
    content += '"';
  }
  return impl_->emit(type, [&] { return dense(content, type); });
}

Value Builder::constant_dense(const std::vector<double>& values, const Type& type) {
  check(static_cast<int64_t>(values.size()) == type.elements(), "constant", values.size(), " values for ", type);
  check(is_float(type.element), "constant", "floats for ", type);
  std::string content;
  if (!impl_->writes) return impl_->emit(type);
  const bool f32 = type.element == ElementType::kF32;
  if (values.size() <= kReadableElements || (!f32 && type.element != ElementType::kF64)) {
    content = nested(type, [&](size_t i) { return float_text(values[i], type.element); });
  } else {
    content = "\"0x";
    for (double value : values) {
      append_bytes(content, f32 ? std::bit_cast<uint32_t>(static_cast<float>(value)) : std::bit_cast<uint64_t>(value),
                   f32 ? 4 : 8);
    }
    content += '"';
  }
  return impl_->emit(type, [&] { return dense(content, type); });
}

Value Builder::iota(const Type& type, int64_t dimension) {
  check_dimensions("iota", "dimension", {dimension}, type.rank());
  check(type.element != ElementType::kPred, "iota", "has no boolean form");
  return impl_->emit(type, "stablehlo.iota dim = ", dimension, " : ", type);
}

}  // namespace tpjrt::hlo
