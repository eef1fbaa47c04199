// A scalar operand of a node: a Python scalar, a Scalar argument, or the value of a 0-dim CPU tensor.
//
// Scalars are not part of a node's signature, so that a value which changes from step to step can become an input of
// the compiled program ("Values that vary", ARCHITECTURE.md).
#pragma once

#include <c10/core/Scalar.h>

#include <bit>
#include <cstdint>

namespace tpjrt::graph {

struct ScalarValue {
  enum class Kind : uint8_t { kDouble, kInt, kBool, kComplex, kKey };
  Kind kind = Kind::kDouble;
  uint64_t bits = 0;       // a double's bits, an integer, or 0/1. kKey: one half of a random key, always an input
  double imaginary = 0.0;  // kComplex only

  static ScalarValue of(const c10::Scalar& scalar) {
    if (scalar.isFloatingPoint()) return {Kind::kDouble, std::bit_cast<uint64_t>(scalar.toDouble()), 0.0};
    if (scalar.isComplex()) {
      const auto value = scalar.toComplexDouble();
      return {Kind::kComplex, std::bit_cast<uint64_t>(value.real()), value.imag()};
    }
    if (scalar.isBoolean()) return {Kind::kBool, static_cast<uint64_t>(scalar.toBool()), 0.0};
    return {Kind::kInt, static_cast<uint64_t>(scalar.toLong()), 0.0};
  }
  static ScalarValue of(int64_t value) { return {Kind::kInt, static_cast<uint64_t>(value), 0.0}; }
  static ScalarValue key(uint64_t value) { return {Kind::kKey, value, 0.0}; }

  double as_double() const { return std::bit_cast<double>(bits); }
  int64_t as_int() const { return static_cast<int64_t>(bits); }
  c10::Scalar scalar() const {
    switch (kind) {
      case Kind::kDouble: return as_double();
      case Kind::kBool: return bits != 0;
      case Kind::kComplex: return c10::complex<double>(as_double(), imaginary);
      default: return as_int();
    }
  }
  bool operator==(const ScalarValue& other) const {
    return kind == other.kind && bits == other.bits &&
           std::bit_cast<uint64_t>(imaginary) == std::bit_cast<uint64_t>(other.imaginary);
  }
};

}  // namespace tpjrt::graph
