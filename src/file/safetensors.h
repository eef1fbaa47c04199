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

}  // namespace tpjrt::file
