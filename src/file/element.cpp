// One table of the formats' names for element types.
#include "file/element.h"

#include <array>

namespace tpjrt::file {
namespace {

struct Row {
  DType dtype;
  size_t width;
  std::string_view name, safetensors, npy;
};

constexpr std::array kRows{
    Row{DType::kBool, 1, "bool", "BOOL", "|b1"},
    Row{DType::kInt8, 1, "int8", "I8", "|i1"},
    Row{DType::kInt16, 2, "int16", "I16", "<i2"},
    Row{DType::kInt32, 4, "int32", "I32", "<i4"},
    Row{DType::kInt64, 8, "int64", "I64", "<i8"},
    Row{DType::kUInt8, 1, "uint8", "U8", "|u1"},
    Row{DType::kUInt16, 2, "uint16", "U16", "<u2"},
    Row{DType::kUInt32, 4, "uint32", "U32", "<u4"},
    Row{DType::kUInt64, 8, "uint64", "U64", "<u8"},
    Row{DType::kFloat16, 2, "float16", "F16", "<f2"},
    Row{DType::kBFloat16, 2, "bfloat16", "BF16", ""},
    Row{DType::kFloat32, 4, "float32", "F32", "<f4"},
    Row{DType::kFloat64, 8, "float64", "F64", "<f8"},
    Row{DType::kComplex64, 8, "complex64", "C64", "<c8"},
    Row{DType::kFloat8E4M3FN, 1, "float8_e4m3fn", "F8_E4M3", ""},
    Row{DType::kFloat8E5M2, 1, "float8_e5m2", "F8_E5M2", ""},
    Row{DType::kFloat8E4M3FNUZ, 1, "float8_e4m3fnuz", "F8_E4M3FNUZ", ""},
    Row{DType::kFloat8E5M2FNUZ, 1, "float8_e5m2fnuz", "F8_E5M2FNUZ", ""},
    Row{DType::kFloat8E8M0FNU, 1, "float8_e8m0fnu", "F8_E8M0", ""},
};

const Row& row(DType dtype) { return kRows.at(static_cast<size_t>(dtype)); }

std::optional<DType> found(std::string_view Row::* spelling, std::string_view text) {
  for (const Row& row : kRows) {
    if (!text.empty() && row.*spelling == text) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace

std::optional<DType> dtype_named(std::string_view name) { return found(&Row::name, name); }
std::optional<DType> dtype_of_safetensors(std::string_view code) { return found(&Row::safetensors, code); }
std::string_view safetensors_code(DType dtype) { return row(dtype).safetensors; }
std::optional<DType> dtype_of_npy(std::string_view code) { return found(&Row::npy, code); }
std::string_view npy_code(DType dtype) { return row(dtype).npy; }

}  // namespace tpjrt::file

namespace torch_pjrt {

std::string_view name(DType dtype) { return tpjrt::file::row(dtype).name; }
size_t width(DType dtype) { return tpjrt::file::row(dtype).width; }

}  // namespace torch_pjrt
