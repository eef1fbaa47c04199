// Tensors in untrusted files: the formats' names for element types, .npy and safetensors.
#pragma once

#include <torch_pjrt/dtype.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "file/mapping.h"

namespace tpjrt::file {

using torch_pjrt::DType;

std::optional<DType> dtype_named(std::string_view name);           // "float32"
std::optional<DType> dtype_of_safetensors(std::string_view code);  // "F32"
std::string_view safetensors_code(DType dtype);
std::optional<DType> dtype_of_npy(std::string_view code);  // "<f4"
std::string_view npy_code(DType dtype);                    // "" if numpy has no such dtype

// A tensor in memory that it does not own.
struct Stored {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  Bytes bytes;
};
using Tensors = std::map<std::string, Stored, std::less<>>;

// Returns the number of bytes of such a tensor; nothing if it overflows or a size is negative.
std::optional<size_t> size_of(DType dtype, const std::vector<int64_t>& shape);

// Reads a file's bytes, which must outlive the result. Throws Error, which calls the file `path`.
Tensors read_safetensors(Bytes bytes, const std::string& path);
// Replaces the file at the path. Throws Error. Tensors of whole cache lines come first, so they are aligned.
void write_safetensors(const std::string& path, const Tensors& tensors);

// Reads a file's bytes, which must outlive the result; row-major. Throws Error, which calls the file `path`.
Stored read_npy(Bytes bytes, const std::string& path);
// Writes an array. Throws Error if it can't be written. A dtype that numpy lacks is written as unsigned integers of
// the same width.
void write_npy(const std::string& path, const Stored& tensor);

}  // namespace tpjrt::file
