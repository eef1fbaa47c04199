// numpy's .npy: one array.
#pragma once

#include <string>
#include <vector>

#include "file/safetensors.h"

namespace tpjrt::file {

// Of the bytes of a file, which outlive it; row-major. Throws Error; `path` is what it calls the file.
Stored read_npy(Bytes bytes, const std::string& path);
// Throws Error where it can't be written. What numpy has no dtype for is written as unsigned integers of the same width.
void write_npy(const std::string& path, const Stored& tensor);

}  // namespace tpjrt::file
