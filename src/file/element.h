// The formats' names for element types.
#pragma once

#include <optional>
#include <string_view>

#include <torch_pjrt/dtype.h>

namespace tpjrt::file {

using torch_pjrt::DType;

std::optional<DType> dtype_named(std::string_view name);           // "float32"
std::optional<DType> dtype_of_safetensors(std::string_view code);  // "F32"
std::string_view safetensors_code(DType dtype);
std::optional<DType> dtype_of_npy(std::string_view code);  // "<f4"
std::string_view npy_code(DType dtype);                    // "" if numpy has no such dtype

}  // namespace tpjrt::file
