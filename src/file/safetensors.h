// safetensors: named tensors in one piece of memory, row-major, behind a header in JSON.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "file/element.h"
#include "file/mapping.h"

namespace tpjrt::file {

// A tensor in memory that others own.
struct Stored {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  Bytes bytes;
};
using Tensors = std::map<std::string, Stored, std::less<>>;

// Bytes of such a tensor; nothing where that is no number.
std::optional<size_t> size_of(DType dtype, const std::vector<int64_t>& shape);

// Of the bytes of a file, which outlive it. Throws Error; `path` is what it calls the file.
Tensors read_safetensors(Bytes bytes, const std::string& path);
// Whatever is at the path is replaced. Throws Error. Tensors of whole cache lines come first, so that they lie aligned.
void write_safetensors(const std::string& path, const Tensors& tensors);

}  // namespace tpjrt::file
