// Element types, by PyTorch's names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace torch_pjrt {

enum class DType : uint8_t {
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kFloat8E4M3FN,
  kFloat8E5M2,
  kFloat8E4M3FNUZ,
  kFloat8E5M2FNUZ,
  kFloat8E8M0FNU,
};

// Returns "float32", "bool", "float8_e4m3fn" and the like.
std::string_view name(DType dtype);
// Returns the bytes of an element.
size_t width(DType dtype);

// The element type of a C++ type: dtype_of<float>.
template <class T>
inline constexpr bool no_such_element = false;
template <class T>
constexpr DType find_dtype() {
  static_assert(no_such_element<T>, "no element type is this C++ type; give bytes and a DType");
  return DType::kBool;
}
template <>
constexpr DType find_dtype<bool>() {
  return DType::kBool;
}
template <>
constexpr DType find_dtype<int8_t>() {
  return DType::kInt8;
}
template <>
constexpr DType find_dtype<int16_t>() {
  return DType::kInt16;
}
template <>
constexpr DType find_dtype<int32_t>() {
  return DType::kInt32;
}
template <>
constexpr DType find_dtype<int64_t>() {
  return DType::kInt64;
}
template <>
constexpr DType find_dtype<uint8_t>() {
  return DType::kUInt8;
}
template <>
constexpr DType find_dtype<uint16_t>() {
  return DType::kUInt16;
}
template <>
constexpr DType find_dtype<uint32_t>() {
  return DType::kUInt32;
}
template <>
constexpr DType find_dtype<uint64_t>() {
  return DType::kUInt64;
}
template <>
constexpr DType find_dtype<float>() {
  return DType::kFloat32;
}
template <>
constexpr DType find_dtype<double>() {
  return DType::kFloat64;
}
template <class T>
inline constexpr DType dtype_of = find_dtype<T>();

}  // namespace torch_pjrt
